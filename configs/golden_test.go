package configs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

var update = flag.Bool("update", false, "write testdata/*/want.json anew")

// Each directory of testdata is a user and a project; want.json is what comes out of their files.
func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/home")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, home := range dirs {
		dir := filepath.Dir(home)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got := golden(t, dir)
			path := filepath.Join(dir, "want.json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s: run with -update and look at the difference\ngot\n%s\nwant\n%s", path, got, want)
			}
		})
	}
}

func golden(t *testing.T, dir string) []byte {
	root, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	text, _ := os.ReadFile(filepath.Join(dir, "env"))
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[k] = v
	}
	c := configs.Load(configs.Options{
		Home: filepath.Join(root, "home"), Project: filepath.Join(root, "project"), Approve: true,
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	c.Hash = ""
	for _, s := range c.Servers {
		s.Hash = ""
		if s.Limits == c.Settings.Limits {
			s.Limits = configs.Limits{}
		}
		if s.Auth.Type == "none" {
			s.Auth = configs.Auth{}
		}
		if s.Err != nil {
			s.Err = &configs.Diagnostic{Message: s.Err.Message}
		}
	}
	for i := range c.Files {
		c.Files[i].Hash = ""
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(tidy(v), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(out), root+"/", "") + "\n")
}

// tidy leaves out what is empty and writes places and durations short.
func tidy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if file, ok := v["File"].(string); ok && len(v) == 3 {
			if file == "" {
				return nil
			}
			return fmt.Sprintf("%s:%v:%v", file, v["Line"], v["Column"])
		}
		for k, m := range v {
			if n, ok := m.(float64); ok && n >= 1e6 {
				m = time.Duration(n).String()
			}
			switch m = tidy(m); m {
			case nil, "", 0.0, false:
				delete(v, k)
			default:
				v[k] = m
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = tidy(v[i])
		}
	}
	return v
}
