package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mcpproxy/mcpproxy/configs"
)

// runnable are the extensions of what Windows can start: programs itself, batch files through cmd.exe.
var runnable = []string{".com", ".exe", ".bat", ".cmd"}

// resolveWindows finds the program by PATH and PATHEXT; a batch file becomes a command line for cmd.exe.
func (h host) resolveWindows(c *command, spec *configs.Server, env map[string]string) error {
	file, err := h.lookWindows(spec, env)
	if err != nil {
		return err
	}
	c.path = file
	if ext := extension(file); ext != ".bat" && ext != ".cmd" {
		return nil
	}
	c.path = strings.TrimRight(cmp.Or(env["SYSTEMROOT"], `C:\Windows`), `\`) + `\System32\cmd.exe`
	if c.line, err = batchLine(c.path, file, spec.Args); err != nil {
		return &startError{
			stage: Resolve, err: err, msg: fmt.Sprintf("command %q: %v", spec.Command, err),
			hint: "pass it in a file or an environment variable, or start the program without its batch file",
		}
	}
	return nil
}

func (h host) lookWindows(spec *configs.Server, env map[string]string) (string, error) {
	name := strings.ReplaceAll(spec.Command, "/", `\`)
	var exts []string
	for ext := range strings.SplitSeq(strings.ToLower(env["PATHEXT"]), ";") {
		if slices.Contains(runnable, ext) {
			exts = append(exts, ext)
		}
	}
	if exts == nil {
		exts = runnable
	}
	names := make([]string, 0, 5)
	if slices.Contains(runnable, extension(name)) {
		names = append(names, name)
	}
	for _, ext := range exts {
		names = append(names, name+ext)
	}
	isFile := func(file string) bool {
		mode, err := h.mode(file)
		return err == nil && !mode.IsDir()
	}
	if strings.Contains(name, `\`) || strings.Contains(name, ":") {
		under := ""
		if !absWindows(name) {
			under = strings.TrimRight(cmp.Or(spec.Dir, h.cwd), `\`) + `\`
		}
		for _, n := range names {
			if isFile(under + n) {
				return under + n, nil
			}
		}
		if isFile(under + name) {
			return "", &startError{
				stage: Resolve, msg: fmt.Sprintf("command %q is a file that Windows can't start", spec.Command),
				hint: `make "command" the program that runs it (node, python, powershell) and the file its first argument`,
			}
		}
		return "", &startError{
			stage: Resolve, msg: fmt.Sprintf("command %q: there is no file %s", spec.Command, under+name),
			hint: `correct "command" of this server, or install the program`,
		}
	}
	for dir := range strings.SplitSeq(env["PATH"], ";") {
		dir = strings.TrimRight(strings.Trim(dir, `" `), `\`)
		if !absWindows(dir + `\`) {
			continue
		}
		for _, n := range names {
			if file := dir + `\` + n; isFile(file) {
				return file, nil
			}
		}
	}
	return "", notFound(spec.Command, env["PATH"])
}

func absWindows(file string) bool {
	return strings.HasPrefix(file, `\\`) || len(file) > 2 && file[1] == ':' && (file[2] == '\\' || file[2] == '/')
}

func extension(file string) string {
	file = file[strings.LastIndexAny(file, `\/`)+1:]
	if i := strings.LastIndexByte(file, '.'); i > 0 {
		return strings.ToLower(file[i:])
	}
	return ""
}

// batchLine is the command line that runs a batch file with exactly these arguments. cmd.exe reads the line by rules of
// its own, and the batch file, handing its arguments on with %*, has it read them once more; inside quotes only quotes
// and percent signs mean anything to it. /d no AutoRun, /s strip the outer quotes only, /v:off no meaning for "!",
// /e:on for the substitution in batchArg.
func batchLine(cmdexe, file string, args []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `"%s" /d /e:on /v:off /s /c "`, cmdexe)
	for i, arg := range append([]string{file}, args...) {
		if strings.ContainsAny(arg, "\r\n\x00") {
			return "", fmt.Errorf("the argument %q has a line break, which a batch file can't be given safely", arg)
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if i > 0 && plainArg(arg) { // batch files compare their options with unquoted words
			b.WriteString(arg)
		} else {
			batchArg(&b, arg)
		}
	}
	b.WriteByte('"')
	if b.Len() > batchMax {
		return "", fmt.Errorf("its command line has %d bytes, and cmd.exe takes %d", b.Len(), batchMax)
	}
	return b.String(), nil
}

// batchArg quotes one argument so that both cmd.exe and the C runtime of the program behind the batch file read it as it
// is: a quote is doubled, backslashes before a quote are doubled, and a percent sign is followed by a substring of %cd%
// of no length, which keeps it from beginning the name of a variable.
func batchArg(b *strings.Builder, arg string) {
	b.WriteByte('"')
	slashes := 0
	for _, c := range []byte(arg) {
		switch c {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes) + `"`)
			slashes = 0
		case '%':
			b.WriteString("%%cd:~,")
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteByte(c)
	}
	b.WriteString(strings.Repeat(`\`, slashes) + `"`)
}

// batchMax is the longest command line that cmd.exe reads.
const batchMax = 8191

// plainArg tells an argument that means the same without quotes to everyone who reads it.
func plainArg(arg string) bool {
	return arg != "" && !strings.HasSuffix(arg, `\`) && !strings.ContainsFunc(arg, func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`-_./:\@+`, r)
		return !plain
	})
}
