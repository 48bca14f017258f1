package configs

import (
	"strings"
	"testing"
)

// What is no reference stays as it is, whatever stands around it; what is one never fails with a value in the message.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"", "plain", "~", "~/x", "pa$$word", "$5", "a}b", "${", "${}", "${V}", "${N}", "${N:-d}", "${env:V}",
		"${N:-${V}}", "${ ${V}", "${V}}", "$${V}", "${file:x}", "${file:${V}}", "${keyring:a:-b}", "${x:y}", "${env:}", "${V:-}", "${:-x}",
		strings.Repeat("${N:-", 50), strings.Repeat("${N:-", 50) + strings.Repeat("}", 50)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range []place{inCommand, inArg, inEnv, inURL, inHeader} {
			e := expander{base: t.TempDir(), Options: Options{Home: "/home/nobody", Project: "/nowhere",
				Getenv: func(name string) (string, bool) { return "c4nary-value", name == "V" }}}
			got, err := e.expand(text, p)
			if err != nil && strings.Contains(err.Error(), "c4nary-value") && !strings.Contains(text, "c4nary") {
				t.Errorf("%q: the error %q repeats a value", text, err)
			}
			if err != nil && (err.(*problem).hint == "" || got != "") {
				t.Errorf("%q: got %q and %v, want a hint and no value", text, got, err)
			}
			if !strings.Contains(text, "${") && !(p.path && strings.HasPrefix(text, "~")) && (err != nil || got != text) {
				t.Errorf("%q: got %q, %v, want it as it is", text, got, err)
			}
			if err == nil && len(e.found) == 0 && strings.Contains(got, "c4nary-value") && !strings.Contains(text, "c4nary") {
				t.Errorf("%q: a value was used, but not noted as found", text)
			}
		}
	})
}
