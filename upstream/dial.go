package upstream

import (
	"context"

	"github.com/mcpproxy/mcpproxy/configs"
)

// dialTransport makes the wire that a server's transport names.
func (p *Pool) dialTransport(ctx context.Context, spec *configs.Server, in inbound) (wire, error) {
	switch spec.Transport {
	case configs.Stdio:
		w, err := dialStdio(ctx, spec, in, p.Log)
		if err != nil {
			return nil, err
		}
		return w, nil
	case configs.SSE:
		w, err := dialSSE(ctx, spec, in, p.Log, p.client)
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	return dialHTTP(spec, in, p.Log, p.client), nil
}
