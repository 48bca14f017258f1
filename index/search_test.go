package index_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcpproxy/mcpproxy/index"
)

func tool(name, description string, params ...string) string {
	props := []string{}
	for i := 0; i+1 < len(params); i += 2 {
		props = append(props, fmt.Sprintf(`%q:{"type":"string","description":%q}`, params[i], params[i+1]))
	}
	schema := `{"type":"object","properties":{` + strings.Join(props, ",") + `}}`
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":%s}`, name, description, schema)
}

// town is a small catalog of different servers.
func town(t testing.TB) *index.Catalog {
	c, _ := open(t, "")
	put(t, c, "github", tool("create_issue", "Open a new issue in a repository", "repo", "owner/name"),
		tool("list_issues", "List the issues of a repository"), tool("get_me", "Details of the signed-in user: who am I"))
	put(t, c, "gitlab", tool("createIssue", "Creates an issue in a project"),
		tool("merge-request-list", "Lists merge requests"))
	put(t, c, "slack", tool("post_message", "Post a message to a channel", "channel_id", "where to post"),
		tool("whoami", "Tells the bot's account"))
	put(t, c, "bing-cn", tool("bing_search", "使用必应搜索指定的关键词，并返回搜索结果列表"),
		tool("météo", "Prévisions météorologiques à Genève"))
	put(t, c, "aws", tool("s3.putObject", "Uploads bytes into storage"), tool("HTTPServerList", "Lists APIs"))
	return c
}

func found(c *index.Catalog, q index.Query) []string {
	if q.Limit == 0 {
		q.Limit = 8
	}
	all := []string{}
	for _, h := range c.Search(q).Hits {
		all = append(all, h.Item.Server+":"+h.Item.Name)
	}
	return all
}

func TestSearchFinds(t *testing.T) {
	c := town(t)
	for _, tt := range []struct{ query, want string }{
		{"open an issue in a repository", "github:create_issue"},
		{"creating issues for my gitlab project", "gitlab:createIssue"},
		{"merge requests", "gitlab:merge-request-list"},
		{"put object", "aws:s3.putObject"},
		{"s3", "aws:s3.putObject"},
		{"putobject", "aws:s3.putObject"},
		{"server list", "aws:HTTPServerList"},
		{"api", "aws:HTTPServerList"},
		{"posting messages", "slack:post_message"},
		{"CHANNEL", "slack:post_message"},
		{"搜索", "bing-cn:bing_search"},
		{"关键词搜索结果", "bing-cn:bing_search"},
		{"previsions meteorologiques Geneve", "bing-cn:météo"},
		{"ｐｏｓｔ ｍｅｓｓａｇｅ", "slack:post_message"},
		{"who am I", "github:get_me"},
		{"slack: issue message", "slack:post_message"},
		{"create an issue in gitlab", "gitlab:createIssue"},
		{"create an issue on GitHub please", "github:create_issue"},
	} {
		if got := found(c, index.Query{Text: tt.query}); len(got) == 0 || got[0] != tt.want {
			t.Errorf("%q: got %v, want %s first", tt.query, got, tt.want)
		}
	}
	if got := found(c, index.Query{Text: "who am I"}); !slices.Contains(got, "slack:whoami") {
		t.Errorf("who am I: got %v, want slack:whoami among them", got)
	}
	for _, query := range []string{"", "   ", "xylophone", "?!"} {
		if got := c.Search(index.Query{Text: query, Limit: 8}); len(got.Hits) != 0 || got.Total != 0 {
			t.Errorf("%q: got %v, want nothing", query, got)
		}
	}
}

func TestExactNamesComeFirst(t *testing.T) {
	c, _ := open(t, "")
	put(t, c, "b", tool("the", "rarely found"), tool("list_issues", ""))
	put(t, c, "a", tool("list_issues", ""), tool("list_issues_list_issues", "list issues, list issues"))
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"list_issues", []string{"a:list_issues", "b:list_issues"}},
		{" `LIST_Issues`\n", []string{"a:list_issues", "b:list_issues"}},
		{"b:list_issues", []string{"b:list_issues"}},
		{"B.List_Issues", []string{"b:list_issues"}},
		{"b/list_issues", []string{"b:list_issues"}},
		{"mcp__b__list_issues", []string{"b:list_issues"}},
		{"the", []string{"b:the"}},
		{"b list_issues", nil},
		{"b-list_issues", nil},
		{"x:list_issues", nil},
	} {
		var exact []string
		for i, h := range c.Search(index.Query{Text: tt.query, Limit: 8}).Hits {
			if h.Exact {
				exact = append(exact, h.Item.Server+":"+h.Item.Name)
				if i != len(exact)-1 {
					t.Errorf("%q: %s is exact and stands at %d", tt.query, h.Item.Name, i)
				}
			}
		}
		if !slices.Equal(exact, tt.want) {
			t.Errorf("%q: got %v, want %v", tt.query, exact, tt.want)
		}
	}
}

func TestAcceptCountsAndPages(t *testing.T) {
	c, _ := open(t, "")
	for s := range 5 {
		var tools []string
		for i := range 40 {
			tools = append(tools, tool(fmt.Sprintf("find_%02d", i), "find a thing"))
		}
		put(t, c, fmt.Sprintf("s%d", s), tools...)
	}
	accept := func(it *index.Item) bool { return it.Server != "s0" && strings.HasSuffix(it.Name, "7") }
	all := c.Search(index.Query{Text: "thing", Accept: accept, Limit: 100})
	if len(all.Hits) != 16 || all.Total != 16 {
		t.Fatalf("got %d of %d, want 16", len(all.Hits), all.Total)
	}
	var paged []index.Hit
	for offset := 0; offset < 20; offset += 5 {
		r := c.Search(index.Query{Text: "thing", Accept: accept, Limit: 5, Offset: offset})
		if r.Total != 16 {
			t.Errorf("got a total of %d at %d, want 16", r.Total, offset)
		}
		paged = append(paged, r.Hits...)
	}
	if !slices.Equal(paged, all.Hits) {
		t.Errorf("got %v in pages, want %v", paged, all.Hits)
	}
	beyond := []index.Query{{Text: "thing", Limit: 5, Offset: 1000}, {Text: "thing"}, {Text: "thing", Limit: -1, Offset: -1}}
	for _, q := range beyond {
		if r := c.Search(q); len(r.Hits) != 0 || r.Total != 200 {
			t.Errorf("%+v: got %d of %d, want 0 of 200", q, len(r.Hits), r.Total)
		}
	}
}

func TestFurtherPhrasings(t *testing.T) {
	c := town(t)
	q := index.Query{Text: "file a bug", Also: []string{"create issue", "gitlab", "nonsense xyz", ""}}
	if got := found(c, q); len(got) == 0 || got[0] != "gitlab:createIssue" {
		t.Errorf("got %v, want gitlab:createIssue first", got)
	}
	q.Also = []string{"", "", "", "", "create issue"}
	if got := found(c, q); len(got) != 0 {
		t.Errorf("got %v, want a fifth phrasing not to count", got)
	}
	exact := c.Search(index.Query{Text: "bug", Also: []string{"get_me"}, Limit: 1})
	if len(exact.Hits) != 1 || exact.Hits[0].Exact || exact.Hits[0].Item.Name != "get_me" {
		t.Errorf("got %+v, want get_me, not as an exact name", exact.Hits)
	}
}

func TestHostileQueries(t *testing.T) {
	c := town(t)
	words := make([]string, 10_000)
	for i := range words {
		words[i] = fmt.Sprintf("word%d", i)
	}
	for name, text := range map[string]string{
		"symbols":       strings.Repeat("+-&|!(){}[]^\"~*?:\\/ ", 500),
		"invalid UTF-8": "\xff\xfe create\xc0issue \xed\xa0\x80" + strings.Repeat("\xf0", 5000),
		"10,000 words":  strings.Join(words, " ") + " create issue",
		"one long word": strings.Repeat("a", 100_000),
		"joiners":       strings.Repeat("a_", 50_000),
		"humps":         strings.Repeat("aB", 50_000),
		"controls":      "\x00\x01create\x00issue\x1b[0m",
		"marks":         "e" + strings.Repeat("\u0301", 50_000),
		"regexp":        `.*(a+)+$ /issue~9/ name:"x" ^5`,
	} {
		r := c.Search(index.Query{Text: text, Also: []string{text, text}, Limit: 5})
		if len(r.Hits) > 5 || r.Total < len(r.Hits) {
			t.Errorf("%s: got %d hits of %d", name, len(r.Hits), r.Total)
		}
	}
	long := strings.Repeat("lorem ipsum dolor sit amet ", 400) + "merge requests" // 10 KB, said at the end
	if got := found(c, index.Query{Text: long}); len(got) == 0 || got[0] != "gitlab:merge-request-list" {
		t.Errorf("got %v, want gitlab:merge-request-list first", got)
	}
}

// After a server's update nothing of what it took back is found, and others are not touched.
func TestRemovedToolsAreNotFound(t *testing.T) {
	dir := t.TempDir()
	c, _ := open(t, dir)
	put(t, c, "s", tool("alpha", "shared word"), tool("beta", "shared word"))
	put(t, c, "other", tool("other", "shared word"))
	put(t, c, "s", tool("gamma", "shared word"), tool("delta", "shared word"))
	for _, c := range []*index.Catalog{c, first(open(t, dir))} {
		got := found(c, index.Query{Text: "shared word"})
		if slices.Sort(got); !slices.Equal(got, []string{"other:other", "s:delta", "s:gamma"}) {
			t.Errorf("got %v", got)
		}
		for _, name := range []string{"alpha", "beta"} {
			if got := found(c, index.Query{Text: name}); len(got) != 0 {
				t.Errorf("%s: got %v", name, got)
			}
			if _, ok := c.Item(ref("s", name)); ok {
				t.Errorf("%s is still there", name)
			}
		}
	}
}

// The same catalog gives the same answer, whatever order it came to be in.
func TestSearchIsDeterministic(t *testing.T) {
	servers := map[string][]string{}
	verbs, things := []string{"get", "list", "create", "delete"}, []string{"user", "issue", "file", "page"}
	for s := range 12 {
		for _, v := range verbs {
			for _, th := range things {
				id := fmt.Sprintf("s%d", s)
				servers[id] = append(servers[id], tool(v+"_"+th, v+"s one "+th+" of the list", th, "the "+th))
			}
		}
	}
	ids := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11"}
	dir := t.TempDir()
	var want []string
	for round := range 4 {
		c, _ := open(t, "")
		if round > 0 {
			c, _ = open(t, dir) // read at once
		}
		if round != 1 {
			rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for _, id := range ids {
				put(t, c, id, "gone_soon")
				put(t, c, id, servers[id]...)
			}
		}
		if round == 0 {
			d, _ := open(t, dir)
			for _, id := range ids {
				put(t, d, id, servers[id]...)
			}
		}
		var got []string
		for _, text := range []string{"create user", "list of pages", "delete the file", "user"} {
			for _, h := range c.Search(index.Query{Text: text, Also: []string{"get issue"}, Limit: 50}).Hits {
				got = append(got, fmt.Sprintf("%s %s %v", h.Item.Server, h.Item.Name, h.Score))
			}
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: got %v, want %v", round, got, want)
		}
	}
}

// A search in the middle of changes sees each server before or after a change, whole.
func TestConcurrentChanges(t *testing.T) {
	c, _ := open(t, t.TempDir())
	version := func(v int) []string {
		var tools []string
		for i := range 10 {
			tools = append(tools, tool(fmt.Sprintf("v%d_tool%d", v, i), "common text"))
		}
		return tools
	}
	put(t, c, "s", version(0)...)
	var work sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r := c.Search(index.Query{Text: "common text", Limit: 100})
				versions := map[string]int{}
				for _, h := range r.Hits {
					if h.Item.Server == "s" {
						versions[h.Item.Name[:2]]++
					}
				}
				if len(versions) != 1 || versions[slices.Collect(keys(versions))[0]] != 10 {
					t.Errorf("got %v, want ten tools of one version", versions)
					return
				}
				c.Near(index.Tool, "v1_tol3", 3, nil)
				c.Items("", index.Tool)
			}
		})
	}
	for v := range 30 {
		put(t, c, "s", version(v%10)...)
		put(t, c, fmt.Sprintf("other%d", v%3), tool("x", "common text"))
		if err := c.Drop(fmt.Sprintf("other%d", (v+1)%3)); err != nil {
			t.Error(err)
		}
	}
	close(done)
	work.Wait()
}

func keys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestNear(t *testing.T) {
	c := town(t)
	for _, tt := range []struct{ name, want string }{
		{"create-issue", "github:create_issue"},
		{"crate_isue", "github:create_issue"},
		{"github.create_isseu", "github:create_issue"},
		{"gitlab.create_issue", "gitlab:createIssue"},
		{"mcp__slack__post_mesage", "slack:post_message"},
		{"message_post", "slack:post_message"},
		{"putObject", "aws:s3.putObject"},
		{"issues_list", "github:list_issues"},
		{"who_am_i", "slack:whoami"},
	} {
		near := c.Near(index.Tool, tt.name, 3, nil)
		if len(near) == 0 || near[0].Server+":"+near[0].Name != tt.want || len(near) > 3 {
			t.Errorf("%s: got %v, want %s first", tt.name, near, tt.want)
		}
	}
	onlySlack := func(it *index.Item) bool { return it.Server == "slack" }
	if got := c.Near(index.Tool, "create_issue", 5, onlySlack); len(got) != 0 {
		t.Errorf("got %v, want nothing of slack", got)
	}
	for _, name := range []string{"", "zzzzqqqq", "\xff", strings.Repeat("x", 100_000), "日本語"} {
		if got := c.Near(index.Tool, name, 5, nil); len(got) != 0 {
			t.Errorf("%.20q: got %v, want nothing", name, got)
		}
	}
	if got := c.Near(index.Prompt, "create_issue", 5, nil); len(got) != 0 {
		t.Errorf("got %v, want no prompts", got)
	}
	if got := index.Nearest("gthub", []string{"slack", "gitlab", "github"}, 1); !slices.Equal(got, []string{"github"}) {
		t.Errorf("got %v, want github", got)
	}
}
