package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	maxSecretFile  = 64 << 10 // bytes of a ${file:…}
	maxReferences  = 10       // references within defaults of references
	referenceKinds = "${NAME}, ${env:NAME}, ${file:PATH}, each with :-DEFAULT if need be"
)

// place says what a value is for, and with that what its expansion means.
type place struct {
	path     bool // a leading ~ is the home directory
	mayEmpty bool // a variable that is set but empty may make the whole value empty
	whole    bool // not even a part may come from a variable that is empty: "Bearer " is no credential
}

var (
	inCommand = place{path: true}
	inDir     = place{path: true}
	inArg     = place{path: true, mayEmpty: true}
	inEnv     = place{path: true}
	inURL     = place{}
	inHeader  = place{whole: true} // and auth
)

// problem is an error that says what to do.
type problem struct{ message, hint string }

func (p *problem) Error() string { return p.message }

// expander resolves the references of one value. All that is no reference stays as it is: "pa$$word", "$5", "$HOME",
// "a}b", the shell's "${x%.*}".
type expander struct {
	Options
	base  string   // directory that ${file:…} starts from
	found []string // what references resolved to
	empty string   // a reference that resolved to nothing, if there was one
}

// expand is text with its references resolved. Its errors are problems and hold no resolved value.
func (e *expander) expand(text string, p place) (string, error) {
	out, err := e.replace(text, p, 0)
	if err == nil && e.empty != "" && (p.whole || out == "" && !p.mayEmpty) {
		return "", &problem{e.empty + " is not set (it is empty)", "give it a value, or write a default: ${NAME:-default}"}
	}
	return out, err
}

func (e *expander) replace(text string, p place, depth int) (string, error) {
	if depth > maxReferences {
		return "", &problem{fmt.Sprintf("references are nested more than %d deep", maxReferences), "simplify the defaults"}
	}
	if p.path {
		text = atHome(e.Home, text)
	}
	p.path = p.path && strings.HasPrefix(text, "${") // a default that begins the value may begin with ~ too
	var b strings.Builder
	ends := closings(text)
	for i := 0; i < len(text); {
		end, ok := ends[i]
		if !ok {
			b.WriteByte(text[i])
			i++
			continue
		}
		value, isReference, err := e.reference(text[i+2:end], p, depth)
		switch {
		case err != nil:
			return "", err
		case !isReference:
			b.WriteString("${")
			i += 2
			continue
		}
		b.WriteString(value)
		i, p.path = end+1, false
	}
	return b.String(), nil
}

// closings maps where each ${ stands to where its } stands.
func closings(text string) map[int]int {
	var open []int
	ends := map[int]int{}
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open = append(open, i)
			i++
		case text[i] == '}' && len(open) > 0:
			ends[open[len(open)-1]] = i
			open = open[:len(open)-1]
		}
	}
	return ends
}

var (
	plainName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)($|:-)`)
	kindName  = regexp.MustCompile(`^([a-z][A-Za-z]*):`)
)

// reference resolves what stands between ${ and }, or says that it is none.
func (e *expander) reference(body string, p place, depth int) (value string, isReference bool, err error) {
	if fixed, ok := e.fixed(body); ok {
		return fixed, true, nil
	}
	kind, rest := "env", body
	if plainName.FindStringIndex(body) == nil {
		m := kindName.FindStringSubmatch(body)
		if m == nil {
			return "", false, nil
		}
		kind, rest = m[1], body[len(m[0]):]
	}
	r, ok := references[kind]
	if !ok {
		return "", true, &problem{fmt.Sprintf("${%s:…} is no known reference", clip(kind)), "known are " + referenceKinds}
	}
	name, fallback, hasFallback := strings.Cut(rest, ":-")
	arg, err := e.replace(name, place{path: kind == "file"}, depth+1)
	if err != nil {
		return "", true, err
	}
	value, err = r.resolve(e, arg)
	switch {
	case hasFallback && (errors.Is(err, fs.ErrNotExist) || err == nil && value == ""):
		value, err = e.replace(fallback, p, depth+1)
		return value, true, err
	case errors.Is(err, fs.ErrNotExist):
		return "", true, &problem{fmt.Sprintf("%s %s %s", r.noun, clip(name), r.absent), fmt.Sprintf(r.hint, clip(name))}
	case err != nil:
		return "", true, &problem{fmt.Sprintf("%s %s: %v", r.noun, clip(name), err), fmt.Sprintf(r.hint, clip(name))}
	case value == "":
		e.empty = r.noun + " " + clip(name)
	}
	e.found = append(e.found, value)
	return value, true, nil
}

// fixed are the references that other programs have for places. They are no secrets.
func (e *expander) fixed(name string) (string, bool) {
	switch name {
	case "userHome":
		return e.Home, true
	case "workspaceFolder":
		return e.Project, true
	case "workspaceFolderBasename":
		return filepath.Base(e.Project), true
	case "pathSeparator", "/":
		return string(filepath.Separator), true
	}
	return "", false
}

// references are the kinds of reference by what stands before the colon. What does not exist is fs.ErrNotExist; no
// error may hold a value.
var references = map[string]struct {
	noun, absent, hint string
	resolve            func(e *expander, arg string) (string, error)
}{
	"env": {"environment variable", "is not set",
		"set %[1]s before mcpproxy starts, or write a default: ${%[1]s:-default}", fromEnvironment},
	"file": {"file", "does not exist",
		"%s is relative to the configuration file; it must be a readable file of at most 64 KiB", fromFile},
	"keyring": {"keyring entry", "does not exist", "use ${env:NAME} or ${file:PATH} in place of ${keyring:%s}",
		unsupported("the keyring is not supported by this build")},
	"input": {"input", "does not exist", "use ${env:NAME} or ${file:PATH} in place of ${input:%s}",
		unsupported("only editors can ask for inputs")},
}

func unsupported(message string) func(*expander, string) (string, error) {
	return func(*expander, string) (string, error) { return "", errors.New(message) }
}

func fromEnvironment(e *expander, name string) (string, error) {
	if value, ok := e.Getenv(name); ok {
		return value, nil
	}
	return "", os.ErrNotExist
}

// fromFile is a file's text without the line end that editors add.
func fromFile(e *expander, path string) (string, error) {
	text, err := readRegular(under(e.base, path), maxSecretFile)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// clip keeps names in messages short.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
