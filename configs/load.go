package configs

// Options say where to look. The zero value is the real user's environment.
type Options struct {
	File    string                      // --config: this file alone, as the user's own
	Project string                      // project directory; "" is the working directory
	Approve bool                        // trust the project's files for this run
	Home    string                      // "" is the user's home
	Getenv  func(string) (string, bool) // nil is os.LookupEnv
}

// Load reads, merges and checks. It always answers with a usable value: what could not be read or is wrong stands in
// Diagnostics, and a bad entry or file never drops the rest.
func Load(o Options) *Config { panic("stub") }

// Empty is the configuration of nothing but defaults.
func Empty() *Config { panic("stub") }
