package configs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Options say where to look. The zero value is the real user's environment.
type Options struct {
	File    string                      // --config: this file alone, as the user's own
	Project string                      // project directory; "" is the working directory
	Approve bool                        // --approve: trust the project's files for this run
	Deny    bool                        // --no-approve: ignore the project's files for this run
	Home    string                      // "" is the user's home
	Getenv  func(string) (string, bool) // nil is os.LookupEnv

	// Trusted tells whether a project's files may load exactly as they were read (File.Hash); nil is no. It is asked
	// once, and only where neither Approve, Deny nor the user's defaultProjectTrust decides.
	Trusted func(project string, files []File) bool
}

// filled is o with the user's environment where o is silent; directories are absolute.
func (o Options) filled() Options {
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	if o.Home == "" {
		o.Home = home(runtime.GOOS, o.Getenv)
	}
	o.Project = absolute(o.Project)
	return o
}

// UserFiles are the user's two files, lowest precedence first: the one shared with other programs and our own. There
// are none where the user has no home directory.
func UserFiles(o Options) []string {
	o = o.filled()
	dir := configHome(runtime.GOOS, o.Home, o.Getenv)
	if dir == "" {
		return nil
	}
	return []string{filepath.Join(dir, "mcp", "mcp.json"), filepath.Join(dir, "mcpproxy", "mcp.json")}
}

// ProjectFiles are the project's two files, lowest precedence first: the one shared with other programs and our own.
func ProjectFiles(o Options) []string {
	dir := o.filled().Project
	return []string{filepath.Join(dir, ".mcp.json"), filepath.Join(dir, ".mcpproxy", "mcp.json")}
}

// DataDir is where the program keeps what it writes: the flag, else MCPPROXY_DATA_DIR, else XDG_STATE_HOME/mcpproxy,
// else the system's habit. A nil getenv is os.LookupEnv.
func DataDir(flag string, getenv func(string) (string, bool)) string {
	if getenv == nil {
		getenv = os.LookupEnv
	}
	return dataDir(runtime.GOOS, flag, getenv)
}

func dataDir(goos, flag string, getenv func(string) (string, bool)) string {
	if flag == "" {
		flag, _ = getenv("MCPPROXY_DATA_DIR")
	}
	if flag != "" {
		return absolute(flag)
	}
	if dir, _ := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "mcpproxy")
	}
	dir := home(goos, getenv)
	switch goos {
	case "windows":
		if local, _ := getenv("LOCALAPPDATA"); local != "" {
			return filepath.Join(local, "mcpproxy")
		}
		return filepath.Join(dir, "AppData", "Local", "mcpproxy")
	case "darwin":
		return filepath.Join(dir, "Library", "Application Support", "mcpproxy")
	}
	return filepath.Join(dir, ".local", "state", "mcpproxy")
}

// configHome is the directory of the users' configuration. On macOS it is ~/.config as on Linux, since that is where
// the programs that share mcp/mcp.json look. The XDG specification has relative paths ignored.
func configHome(goos, home string, getenv func(string) (string, bool)) string {
	if dir, _ := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if dir, _ := getenv("APPDATA"); goos == "windows" && dir != "" {
		return dir
	}
	switch {
	case home == "":
		return ""
	case goos == "windows":
		return filepath.Join(home, "AppData", "Roaming")
	}
	return filepath.Join(home, ".config")
}

func home(goos string, getenv func(string) (string, bool)) string {
	name := "HOME"
	if goos == "windows" {
		name = "USERPROFILE"
	}
	if dir, _ := getenv(name); dir != "" {
		return dir
	}
	dir, _ := os.UserHomeDir()
	return dir
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// under is path as seen from dir.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// atHome is path with a leading ~ replaced by the home directory.
func atHome(home, path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") || runtime.GOOS == "windows" && strings.HasPrefix(path, `~\`) {
		return home + path[1:]
	}
	return path
}
