package upstream

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

func TestResolveWindows(t *testing.T) {
	const cmdexe = `C:\Windows\System32\cmd.exe`
	const batch = `"` + cmdexe + `" /d /e:on /v:off /s /c "`
	files := map[string]bool{
		`c:\program files\nodejs\node.exe`: true, `c:\program files\nodejs\npx.cmd`: true, `c:\program files\nodejs\npx`: true,
		`c:\program files\nodejs\npx.ps1`: true, `c:\program files\x y\s.cmd`: true, `d:\tools\v1.2.exe`: true,
		`d:\work\bin\run.bat`: true, `d:\work\server.js`: true,
	}
	h := host{
		goos: "windows", cwd: `D:\work`,
		environ: []string{`Path=relative;"C:\Program Files\nodejs\";D:\tools`, `SystemRoot=C:\Windows`, `PATHEXT=.JS;.EXE;.CMD;.BAT`},
		mode: func(path string) (fs.FileMode, error) {
			if files[strings.ToLower(path)] {
				return 0o666, nil
			}
			return 0, fs.ErrNotExist
		},
	}
	for _, tt := range []struct {
		command string
		args    []string
		path    string
		line    string
		fails   string
	}{
		{command: "node", args: []string{"a b"}, path: `C:\Program Files\nodejs\node.exe`},
		{command: "NODE.EXE", path: `C:\Program Files\nodejs\NODE.EXE`},
		{command: "v1.2", path: `D:\tools\v1.2.exe`},
		{command: "npx", args: []string{"-y", "@scope/server@1.0", ""}, path: cmdexe,
			line: batch + `"C:\Program Files\nodejs\npx.cmd" -y @scope/server@1.0 """`},
		{command: `C:\Program Files\x y\s.cmd`, path: cmdexe,
			args: []string{"a&b", "c|d", "<e>", "f^g", "%PATH%", "!x!", `say "hi" & go`},
			line: batch + `"C:\Program Files\x y\s.cmd" "a&b" "c|d" "<e>" "f^g" "%%cd:~,%PATH%%cd:~,%" "!x!" "say ""hi"" & go""`},
		{command: `C:/Program Files/x y/s`, args: []string{`C:\dir\`, `back\"quote`, "a=b;c,d", "(x)"}, path: cmdexe,
			line: batch + `"C:\Program Files\x y\s.cmd" "C:\dir\\" "back\\""quote" "a=b;c,d" "(x)""`},
		{command: `bin\run`, path: cmdexe, line: batch + `"D:\work\bin\run.bat""`},
		{command: "npx", args: []string{"two\nlines"}, fails: "line break"},
		{command: "npx", args: []string{strings.Repeat("x", 9000)}, fails: "cmd.exe takes 8191"},
		{command: "nothing", fails: `was not found; PATH searched: relative;`},
		{command: `D:\work\server.js`, fails: "Windows can't start"},
		{command: `D:\work\absent.exe`, fails: `there is no file D:\work\absent.exe`},
	} {
		t.Run(tt.command+" "+strings.Join(tt.args, " "), func(t *testing.T) {
			c, err := h.command(&configs.Server{Command: tt.command, Args: tt.args})
			if tt.fails != "" {
				var failed *startError
				if !errors.As(err, &failed) || failed.stage != Resolve || failed.hint == "" || !strings.Contains(failed.msg, tt.fails) {
					t.Errorf("got %#v, want a resolve error with a hint that says %q", err, tt.fails)
				}
				return
			}
			if err != nil || c.path != tt.path || c.line != tt.line {
				t.Errorf("got  %s\n     %s, %v\nwant %s\n     %s", c.path, c.line, err, tt.path, tt.line)
			}
		})
	}
}
