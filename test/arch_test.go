package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mcpproxy/mcpproxy"

// arrows are the packages of ours that each package may import.
var arrows = map[string][]string{
	"jsonrpc":      {},
	"configs":      {},
	"index":        {"jsonrpc"},
	"policy":       {"configs", "index", "jsonrpc"},
	"upstream":     {"configs", "index", "jsonrpc"},
	"proxy":        {"upstream", "policy", "configs", "index", "jsonrpc"},
	"webui":        {"proxy", "upstream", "policy", "configs", "index", "jsonrpc"},
	"cmd/mcpproxy": {"webui", "proxy", "upstream", "policy", "configs", "index", "jsonrpc"},
	"test/fake":    {"jsonrpc"},
}

// homes are the packages of ours that may import a module of others, all of it or below a path. What stands nowhere
// here may be imported anywhere.
var homes = []struct {
	path string
	in   []string
}{
	{"github.com/go-chi/chi", []string{"webui"}},
	{"github.com/blevesearch", []string{"index"}},
	{"github.com/fsnotify/fsnotify", []string{"configs"}},
	{"github.com/mark3labs/mcp-go/client", nil},
	{"github.com/mark3labs/mcp-go/server", []string{"cmd/mcpproxy"}},
	{"github.com/mark3labs/mcp-go", []string{"upstream", "proxy", "cmd/mcpproxy"}},
}

var vague = []string{"util", "utils", "common", "types", "helpers"}

// pkg is a package as go list tells of it, without what its tests import.
type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string
}

// faults are the rules that a package breaks.
func faults(p pkg) []string {
	var found []string
	fault := func(format string, a ...any) {
		found = append(found, p.ImportPath+" "+fmt.Sprintf(format, a...))
	}
	us := strings.TrimPrefix(p.ImportPath, module+"/")
	isTest := us == "test" || strings.HasPrefix(us, "test/")
	if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(us)) {
		fault("has a name that says nothing")
	}
	if len(p.GoFiles) > 0 && p.Doc == "" {
		fault("has no package comment")
	}
	may, known := arrows[us]
	if !known && !isTest {
		fault("has no place among the arrows")
	}
	for _, imported := range p.Imports {
		theirs, ours := strings.CutPrefix(imported, module+"/")
		switch {
		case ours && (theirs == "test" || strings.HasPrefix(theirs, "test/")) && !isTest:
			fault("imports %s, which is for tests", theirs)
		case ours && known && !slices.Contains(may, theirs):
			fault("imports %s, may import %v", theirs, may)
		}
		for _, h := range homes {
			if imported != h.path && !strings.HasPrefix(imported, h.path+"/") {
				continue
			}
			if !isTest && !slices.Contains(h.in, us) {
				fault("imports %s, whose home is %v", imported, h.in)
			}
			break
		}
	}
	return found
}

func TestArrows(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Doc,GoFiles,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen[strings.TrimPrefix(p.ImportPath, module+"/")] = true
		for _, f := range faults(p) {
			t.Error(f)
		}
	}
	for name := range arrows {
		if !seen[name] {
			t.Errorf("%s has arrows and does not exist", name)
		}
	}
}

func TestFaults(t *testing.T) {
	const chi, bleve, client, server, mcp = "github.com/go-chi/chi/v5", "github.com/blevesearch/bleve/v2",
		"github.com/mark3labs/mcp-go/client/transport", "github.com/mark3labs/mcp-go/server", "github.com/mark3labs/mcp-go/mcp"
	for _, tc := range []struct {
		in      string
		name    string
		doc     string
		imports []string
		want    string // part of the one fault; "" for none
	}{
		{"proxy", "proxy", "Doc", []string{"fmt", module + "/upstream", module + "/jsonrpc", mcp}, ""},
		{"webui", "webui", "Doc", []string{module + "/proxy", chi}, ""},
		{"index", "index", "Doc", []string{module + "/jsonrpc", bleve}, ""},
		{"cmd/mcpproxy", "main", "Doc", []string{module + "/webui", server, mcp}, ""},
		{"test", "test", "", nil, "no package comment"},
		{"test/rig", "rig", "Doc", []string{module + "/proxy", module + "/test/fake", client, server}, ""},
		{"jsonrpc", "jsonrpc", "Doc", []string{module + "/configs"}, "imports configs, may import []"},
		{"configs", "configs", "Doc", []string{module + "/jsonrpc"}, "imports jsonrpc"},
		{"index", "index", "Doc", []string{module + "/configs"}, "imports configs"},
		{"policy", "policy", "Doc", []string{module + "/upstream"}, "imports upstream"},
		{"upstream", "upstream", "Doc", []string{module + "/policy"}, "imports policy"},
		{"upstream", "upstream", "Doc", []string{module + "/proxy"}, "imports proxy"},
		{"proxy", "proxy", "Doc", []string{module + "/webui"}, "imports webui"},
		{"webui", "webui", "Doc", []string{module + "/cmd/mcpproxy"}, "imports cmd/mcpproxy"},
		{"test/fake", "fake", "Doc", []string{module + "/upstream"}, "imports upstream"},
		{"proxy", "proxy", "Doc", []string{module + "/test/fake"}, "for tests"},
		{"proxy", "proxy", "Doc", []string{chi}, "whose home is [webui]"},
		{"proxy", "proxy", "Doc", []string{bleve}, "whose home is [index]"},
		{"proxy", "proxy", "Doc", []string{"github.com/fsnotify/fsnotify"}, "whose home is [configs]"},
		{"upstream", "upstream", "Doc", []string{client}, "whose home is []"},
		{"proxy", "proxy", "Doc", []string{server}, "whose home is [cmd/mcpproxy]"},
		{"index", "index", "Doc", []string{mcp}, "whose home is [upstream"},
		{"proxy", "proxy", "", nil, "no package comment"},
		{"proxy", "types", "Doc", nil, "says nothing"},
		{"proxy/helpers", "x", "Doc", nil, "says nothing"},
		{"extra", "extra", "Doc", nil, "no place"},
	} {
		t.Run(tc.in+" "+tc.want, func(t *testing.T) {
			got := faults(pkg{ImportPath: module + "/" + tc.in, Name: tc.name, Doc: tc.doc, GoFiles: []string{"x.go"}, Imports: tc.imports})
			if tc.in == "proxy/helpers" { // also unknown
				got = got[:1]
			}
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("got %q, want one with %q", got, tc.want)
			}
		})
	}
}
