package configs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// effectiveHash is over all that has an effect; where values stand has none.
func effectiveHash(c *Config) string {
	servers := make([]Server, len(c.Servers))
	for i, s := range c.Servers {
		servers[i] = *s
		servers[i].Origin, servers[i].Origins, servers[i].Secrets = Origin{}, nil, nil
		if s.Err != nil {
			servers[i].Err = &Diagnostic{Message: s.Err.Message}
		}
	}
	return hash(struct {
		Settings Settings
		Servers  []Server
	}{c.Settings, servers})
}

// connectionHash is over what a server's connection depends on.
func connectionHash(s *Server) string {
	return hash(Server{
		ID: s.ID, Transport: s.Transport, Fallback: s.Fallback, Lifecycle: s.Lifecycle,
		Command: s.Command, Args: s.Args, Dir: s.Dir, Env: s.Env, EnvAllowlist: s.EnvAllowlist,
		URL: s.URL, Headers: s.Headers, Auth: s.Auth, Allow: s.Allow, Share: s.Share,
	})
}

// hash is over the JSON of a value, whose maps have their keys in order.
func hash(v any) string {
	text, _ := json.Marshal(v)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}
