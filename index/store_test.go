package index_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/index"
)

// A file that can't be used costs its own listing and nothing else, and the server can be listed anew.
func TestDamagedFiles(t *testing.T) {
	edit := func(f func(b []byte) []byte) func(string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, f(b), 0o600)
		}
	}
	replace := func(old, new string) func(string) error {
		return edit(func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) })
	}
	for _, tt := range []struct {
		name   string
		damage func(path string) error
	}{
		{"empty", edit(func([]byte) []byte { return nil })},
		{"cut short", edit(func(b []byte) []byte { return b[:len(b)/2] })},
		{"last byte missing", edit(func(b []byte) []byte { return b[:len(b)-2] })},
		{"all zeros", edit(func(b []byte) []byte { return make([]byte, len(b)) })},
		{"zeros inside", edit(func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b })},
		{"zeros at the end", edit(func(b []byte) []byte { clear(b[len(b)-40:]); return b })},
		{"no object", edit(func([]byte) []byte { return []byte("[]\n") })},
		{"another version", replace(`"version":1`, `"version":2`)},
		{"no version", replace(`"version":1,`, ``)},
		{"of another server", replace(`"server":"bad"`, `"server":"good"`)},
		{"wrong types", replace(`"server":"bad"`, `"server":7`)},
		{"a directory", func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(path, "x"), 0o700)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			c, _ := open(t, dir)
			put(t, c, "good", "good_tool")
			put(t, c, "bad", "bad_tool", "bad_too")
			path := filepath.Join(dir, "bad.json")
			if err := tt.damage(path); err != nil {
				t.Fatal(err)
			}
			for i := range 2 { // the second time there is nothing left to warn of
				c, w := open(t, dir)
				if _, ok := c.Listing("bad"); ok {
					t.Error("the damaged listing was read")
				}
				if got := c.Search(index.Query{Text: "tool", Limit: 5}); got.Total != 1 || got.Hits[0].Item.Server != "good" {
					t.Errorf("got %v, want the good server's tool", got)
				}
				if want := 1 - i; len(*w) != want || i == 0 && !strings.Contains((*w)[0], "bad.json") {
					t.Errorf("got warnings %q, want %d with the file", *w, want)
				}
				if _, err := os.Stat(path + ".damaged"); err != nil {
					t.Errorf("not set aside: %v", err)
				}
			}
			again, _ := open(t, dir)
			put(t, again, "bad", "bad_tool")
			if c, w := open(t, dir); len(*w) > 0 || len(c.Items("bad", index.Tool)) != 1 {
				t.Errorf("not put anew: %v", *w)
			}
		})
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // has no such modes
	}
	dir := filepath.Join(t.TempDir(), "data", "catalog")
	c, _ := open(t, dir)
	put(t, c, "s", "a")
	file := filepath.Join(dir, "s.json")
	mode := func(path string, want os.FileMode) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	mode(dir, 0o700)
	mode(file, 0o600)
	for path, wrong := range map[string]os.FileMode{dir: 0o755, file: 0o444} {
		if err := os.Chmod(path, wrong); err != nil {
			t.Fatal(err)
		}
	}
	again, w := open(t, dir)
	if _, ok := again.Listing("s"); !ok || len(*w) > 0 {
		t.Errorf("not read: %v", *w)
	}
	mode(dir, 0o700)
	mode(file, 0o600)
}

func TestForeignFilesAndMembers(t *testing.T) {
	dir := t.TempDir()
	c, _ := open(t, dir)
	put(t, c, "s", "a")
	b, err := os.ReadFile(filepath.Join(dir, "s.json"))
	if err != nil {
		t.Fatal(err)
	}
	b = []byte(strings.Replace(string(b), `{"version":1`, `{"later":{"version":9},"tools2":[1],"version":1`, 1))
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("s.json", b)
	write("notes.txt", []byte("mine"))
	write(".new-123", []byte("{")) // another process is writing it
	write(".new-old", []byte("{"))
	if err := os.Chtimes(filepath.Join(dir, ".new-old"), time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	again, w := open(t, dir)
	if _, ok := again.Item(ref("s", "a")); !ok || len(*w) > 0 {
		t.Errorf("not read: %v", *w)
	}
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".new-123", "notes.txt", "s.json"}; !slices.Equal(left, want) {
		t.Errorf("got files %v, want %v", left, want)
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := index.Open(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names %s", err, file)
	}
}

func TestUnwritableListingServesFromMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "catalog")
	c, _ := open(t, dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	d, err := c.Put(listing("s", "only_here"))
	if err == nil || len(d.Added) != 1 {
		t.Errorf("got %v, %v, want the difference and an error", d, err)
	}
	if got := c.Search(index.Query{Text: "only_here", Limit: 5}); got.Total != 1 {
		t.Errorf("got %v", got)
	}
}

// Two catalogs on one directory see what the other writes, within a moment, and neither stands in the other's way.
func TestSharedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a, aw := open(t, dir)
		b, bw := open(t, dir)
		moment := func() { time.Sleep(time.Second) }
		found := func(c *index.Catalog, text string) string {
			var all []string
			for _, h := range c.Search(index.Query{Text: text, Limit: 50}).Hits {
				all = append(all, h.Item.Server+":"+h.Item.Name)
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		expect := func(text, want string) {
			t.Helper()
			moment()
			for i, c := range []*index.Catalog{a, b} {
				if got := found(c, text); got != want {
					t.Errorf("catalog %d: got %q, want %q", i, got, want)
				}
			}
		}
		put(t, a, "one", "task_x", "task_y")
		put(t, b, "two", "task_z")
		expect("task", "one:task_x one:task_y two:task_z")
		put(t, b, "one", "task_w")
		expect("task", "one:task_w two:task_z")
		if _, ok := a.Item(ref("one", "task_x")); ok {
			t.Error("a removed tool is still there")
		}
		for i := range 20 { // whoever writes last wins, however fast they follow each other
			put(t, a, "one", fmt.Sprintf("task_a%02d", i))
			put(t, b, "one", fmt.Sprintf("task_b%02d", i))
		}
		expect("task", "one:task_b19 two:task_z")
		if err := a.Drop("two"); err != nil {
			t.Fatal(err)
		}
		expect("task", "one:task_b19")
		if err := os.WriteFile(filepath.Join(dir, "one.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		expect("task", "one:task_b19") // the last whole listing stays
		if len(*aw)+len(*bw) != 1 {
			t.Errorf("got warnings %q and %q, want one", *aw, *bw)
		}
	})
}
