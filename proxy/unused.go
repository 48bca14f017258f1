package proxy

import (
	"cmp"
	"slices"

	"github.com/mcpproxy/mcpproxy/configs"
)

// unused says of each configured value that is understood but not carried out, so that nobody relies on it.
func unused(c *configs.Config) []configs.Diagnostic {
	var out []configs.Diagnostic
	warn := func(set bool, key, server string, at configs.Origin) {
		if set {
			out = append(out, configs.Diagnostic{Severity: configs.Warning, Server: server, Path: "/" + key, Origin: at,
				Message: `"` + key + `" has no effect in this version`, Hint: "remove it, so that nobody relies on it"})
		}
	}
	s, d := c.Settings, configs.Empty().Settings
	var file configs.Origin // settings may come from several files; the highest that was read is named
	for _, f := range c.Files {
		if f.State == configs.Loaded {
			file.File = f.Path
		}
	}
	warn(s.Mode != d.Mode, "mode", "", file)
	warn(s.Resources != d.Resources, "resources", "", file)
	warn(s.Prompts != d.Prompts, "prompts", "", file)
	warn(promotes(s.DirectTools), "directTools", "", file)
	warn(s.RequireToken, "requireToken", "", file)
	warn(s.SearchWarmup, "searchWarmup", "", file)
	for _, s := range c.Servers {
		at := func(key string) configs.Origin { return cmp.Or(s.Origins["/"+key], s.Origin) }
		warn(promotes(s.DirectTools), "directTools", s.ID, at("directTools"))
		warn(s.Pin, "pin", s.ID, at("pin"))
		warn(len(s.Allow) > 0, "allow", s.ID, at("allow"))
		warn(s.Share == "session", "share", s.ID, at("share"))
		warn(len(s.Overrides) > 0, "overrides", s.ID, at("overrides"))
		warn(s.Auth.Type == "oauth", "auth", s.ID, at("auth"))
	}
	return out
}

// promotes tells whether a directTools value (bool or list of names) promotes anything.
func promotes(direct any) bool {
	names, _ := direct.([]string)
	return direct == true || len(names) > 0
}

// Diagnostics are all problems of the effective configuration.
func (g *Gateway) Diagnostics() []configs.Diagnostic { return g.view.Load().diagnostics() }

func (v *view) diagnostics() []configs.Diagnostic {
	return slices.Concat(v.config.Diagnostics, unused(v.config))
}
