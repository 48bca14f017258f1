package index

import (
	"slices"
	"strings"
	"testing"
)

func TestTerms(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"create_issue", "creat issu createissu"},
		{"create-issue", "creat issu createissu"},
		{"createIssue", "creat issu createissu"},
		{"github.create_issue", "github creat issu createissu"},
		{"github/create", "github creat"},
		{"HTTPServer", "http server httpserver"},
		{"listAPIs APIs IDs", "list api listapi api id"},
		{"s3 ms365 k8s", "3 s3 ms 365 ms365 8 k8s"},
		{"v2", "2 v2"},
		{"x-axis", "axi xaxi"},
		{"today's user’s don't I'd", "today user don- i-"},
		{"the users of it", "the- user of- it-"},
		{"Crème Brûlée", "creme brule"},
		{"Łódź Straße", "lodz strase"},
		{"ｆｕｌｌ ﬁle", "full file"},
		{"搜索结果", "搜索 索结 结果"},
		{"搜 a搜b", "搜 a- 搜 b"},
		{"한국어", "한국 국어"},
		{"привет мир", "привет мир"},
		{"a__b --x-- _y_", "a- b x y"},
		{"\xff\x00", ""},
	} {
		for _, x := range []lexicon{nil, {}} {
			for range 2 {
				var got []string
				x.read(tt.in, func(t term) {
					s := t.text
					if t.stop {
						s += "-"
					}
					got = append(got, s)
				})
				if !slices.Equal(got, strings.Fields(tt.want)) {
					t.Errorf("%q: got %q, want %q", tt.in, strings.Join(got, " "), tt.want)
				}
			}
		}
	}
}

func FuzzTerms(f *testing.F) {
	f.Add("create_issue s3.putObject APIs don't 搜索 é")
	f.Fuzz(func(t *testing.T, text string) {
		var fresh, remembered []term
		lexicon(nil).read(text, func(t term) { fresh = append(fresh, t) })
		x := lexicon{}
		x.read(text, func(term) {})
		x.read(text, func(t term) { remembered = append(remembered, t) })
		if !slices.Equal(fresh, remembered) {
			t.Errorf("got %v from memory, %v without", remembered, fresh)
		}
		for _, term := range fresh {
			if term.text == "" {
				t.Error("an empty term")
			}
		}
	})
}
