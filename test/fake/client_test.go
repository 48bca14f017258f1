package fake_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/test/fake"
)

func TestMain(m *testing.M) {
	fake.Main()
	os.Exit(m.Run())
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// offering is a server with something of everything, on several pages.
func offering(era fake.Era) fake.Script {
	return fake.Script{
		Name: "shop", Version: "2.0", Instructions: "Be kind.", Era: era,
		Tools:       fake.Builtin("echo", "add", "fail", "progress", "log", "blocks", "elicit"),
		Many:        5,
		Resources:   []fake.Resource{{URI: "memo://a", Text: "alpha"}, {URI: "memo://b", Blob: "AAEC"}},
		Templates:   []string{`{"uriTemplate":"memo://{name}","name":"memo"}`},
		Prompts:     []string{`{"name":"greet","arguments":[{"name":"who","required":true}]}`},
		Completions: map[string][]string{"who": {"world", "wife", "Bob"}},
		PageSize:    3,
	}
}

// TestIndependentClient drives the server with a client that knows nothing of it, over every transport and era.
func TestIndependentClient(t *testing.T) {
	for _, tc := range []struct {
		transport string
		era       fake.Era
		want      string
	}{
		{"stdio", fake.Legacy, "2025-11-25"}, {"stdio", fake.Modern, "2026-07-28"}, {"stdio", fake.Both, "2026-07-28"},
		{"http", fake.Legacy, "2025-11-25"}, {"http", fake.Modern, "2026-07-28"}, {"http", fake.Both, "2026-07-28"},
		{"http streams", fake.Legacy, "2025-11-25"}, {"http streams", fake.Modern, "2026-07-28"},
		{"http without sessions", fake.Legacy, "2025-11-25"},
		{"sse", fake.Legacy, "2025-11-25"},
	} {
		t.Run(tc.transport+" "+string(tc.era), func(t *testing.T) {
			ctx := deadline(t)
			script := offering(tc.era)
			script.HTTP.SSE = tc.transport == "http streams"
			script.HTTP.NoSessions = tc.transport == "http without sessions"
			c := connect(t, tc.transport, script)
			init, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
				ClientInfo: mcp.Implementation{Name: "independent", Version: "1"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.ProtocolVersion(); got != tc.want {
				t.Errorf("protocol version: got %q, want %q", got, tc.want)
			}
			if init.ServerInfo.Name != "shop" || init.ServerInfo.Version != "2.0" || init.Instructions != "Be kind." {
				t.Errorf("server: got %+v", init)
			}
			lists(ctx, t, c)
			calls(ctx, t, c, tc.transport != "sse")
		})
	}
}

// connect starts the script and a client to it.
func connect(t *testing.T, way string, script fake.Script) *client.Client {
	t.Helper()
	var c *client.Client
	switch way {
	case "stdio":
		command, args, env := fake.Child(script)
		var pairs []string
		for k, v := range env {
			pairs = append(pairs, k+"="+v)
		}
		c = client.NewClient(transport.NewStdio(command, pairs, args...), answers()...)
	case "sse":
		s := fake.New(script)
		web := httptest.NewServer(s.SSE())
		t.Cleanup(web.Close)
		t.Cleanup(s.Close)
		tr, err := transport.NewSSE(web.URL + "/gateway/sse")
		if err != nil {
			t.Fatal(err)
		}
		c = client.NewClient(tr, answers()...)
	default:
		s := fake.New(script)
		web := httptest.NewServer(s.HTTP())
		t.Cleanup(web.Close)
		t.Cleanup(s.Close)
		tr, err := transport.NewStreamableHTTP(web.URL + "/mcp")
		if err != nil {
			t.Fatal(err)
		}
		c = client.NewClient(tr, answers()...)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// blue answers what the server asks the user.
type blue struct{}

func (blue) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"colour": "blue"},
	}}, nil
}

func answers() []client.ClientOption {
	return []client.ClientOption{client.WithElicitationHandler(blue{})}
}

func lists(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	want := "echo add fail progress log blocks elicit tool_0001 tool_0002 tool_0003 tool_0004 tool_0005"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("tools: got %q, want %q", got, want)
	}
	resources, err := c.ListResources(ctx, mcp.ListResourcesRequest{})
	if err != nil || len(resources.Resources) != 2 || resources.Resources[1].URI != "memo://b" {
		t.Errorf("resources: got %+v, %v", resources, err)
	}
	templates, err := c.ListResourceTemplates(ctx, mcp.ListResourceTemplatesRequest{})
	if err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("templates: got %+v, %v", templates, err)
	}
	read, err := c.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "memo://a"}})
	if err != nil || len(read.Contents) != 1 || read.Contents[0].(mcp.TextResourceContents).Text != "alpha" {
		t.Errorf("read: got %+v, %v", read, err)
	}
	if _, err := c.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "memo://z"}}); err == nil {
		t.Error("reading an unknown resource: no error")
	}
	prompts, err := c.ListPrompts(ctx, mcp.ListPromptsRequest{})
	if err != nil || len(prompts.Prompts) != 1 {
		t.Errorf("prompts: got %+v, %v", prompts, err)
	}
	prompt, err := c.GetPrompt(ctx, mcp.GetPromptRequest{Params: mcp.GetPromptParams{
		Name: "greet", Arguments: map[string]string{"who": "you"},
	}})
	if err != nil || prompt.Messages[0].Content.(mcp.TextContent).Text != `greet {"who":"you"}` {
		t.Errorf("prompt: got %+v, %v", prompt, err)
	}
	values, err := c.Complete(ctx, mcp.CompleteRequest{Params: mcp.CompleteParams{
		Ref: mcp.PromptReference{Type: "ref/prompt", Name: "greet"}, Argument: mcp.CompleteArgument{Name: "who", Value: "w"},
	}})
	if err != nil || !reflect.DeepEqual(values.Completion.Values, []string{"world", "wife"}) {
		t.Errorf("completions: got %+v, %v", values, err)
	}
}

func calls(ctx context.Context, t *testing.T, c *client.Client, answersRequests bool) {
	t.Helper()
	call := func(name string, args map[string]any) *mcp.CallToolResult {
		t.Helper()
		r, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{
			Name: name, Arguments: args, Meta: &mcp.Meta{ProgressToken: "tok-1"},
		}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return r
	}
	text := func(r *mcp.CallToolResult) string { return r.Content[0].(mcp.TextContent).Text }
	if got := text(call("echo", map[string]any{"text": "grüße"})); got != "grüße" {
		t.Errorf("echo: got %q", got)
	}
	if got := text(call("add", map[string]any{"a": 2, "b": 40})); got != "42" {
		t.Errorf("add: got %q", got)
	}
	if r := call("fail", nil); !r.IsError {
		t.Errorf("fail: got %+v", r)
	}
	if got := text(call("tool_0003", map[string]any{"x": 1})); got != `{"x":1}` {
		t.Errorf("tool_0003: got %q", got)
	}
	got := make(chan string, 10)
	c.OnNotification(func(n mcp.JSONRPCNotification) { got <- n.Method })
	call("progress", map[string]any{"n": 3})
	for i := range 3 {
		select {
		case method := <-got:
			if method != "notifications/progress" {
				t.Errorf("notification %d: got %s", i, method)
			}
		case <-ctx.Done():
			t.Fatalf("progress %d of 3 did not come", i+1)
		}
	}
	if answersRequests {
		if got := text(call("elicit", nil)); !strings.Contains(got, `"colour":"blue"`) {
			t.Errorf("elicit: got %q", got)
		}
	}
	if _, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "nothing"}}); err == nil {
		t.Error("calling an unknown tool: no error")
	}
}

func TestListChangedReachesAnIndependentClient(t *testing.T) {
	for _, era := range []fake.Era{fake.Legacy, fake.Modern} {
		t.Run(string(era), func(t *testing.T) {
			ctx := deadline(t)
			s := fake.New(fake.Script{Era: era, Tools: fake.Builtin("echo"), HTTP: fake.HTTP{}})
			web := httptest.NewServer(s.HTTP())
			t.Cleanup(web.Close)
			t.Cleanup(s.Close)
			var options []transport.StreamableHTTPCOption
			if era == fake.Legacy {
				//lint:ignore SA1019 the handshake era is what is tested
				options = append(options, transport.WithContinuousListening())
			}
			tr, err := transport.NewStreamableHTTP(web.URL, options...)
			if err != nil {
				t.Fatal(err)
			}
			c := client.NewClient(tr)
			got := make(chan string, 10)
			c.OnNotification(func(n mcp.JSONRPCNotification) { got <- n.Method })
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
				t.Fatal(err)
			}
			if era == fake.Modern {
				stop, err := c.ListenAsync(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
			}
			// The stream opens some time after initialize: changes are announced until one arrives.
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				select {
				case method := <-got:
					if method == "notifications/tools/list_changed" {
						return
					}
				case <-tick.C:
					s.SetTools(fake.Builtin("add")...)
				case <-ctx.Done():
					t.Fatal("no list_changed")
				}
			}
		})
	}
}

func TestChildRecords(t *testing.T) {
	ctx := deadline(t)
	file := filepath.Join(t.TempDir(), "record")
	c := connect(t, "stdio", fake.Script{Era: fake.Legacy, Tools: fake.Builtin("echo"), Record: file})
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	records, err := fake.WaitRecords(ctx, file, func(r []fake.Record) bool {
		return len(fake.Select(r, "notifications/initialized")) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(fake.Methods(records)); got != "[server/discover initialize notifications/initialized]" {
		t.Errorf("methods: got %s", got)
	}
	if records[0].Event != "start" || records[0].PID <= 0 {
		t.Errorf("first record: got %+v", records[0])
	}
	var sent struct{ Method string }
	if err := json.Unmarshal([]byte(records[1].Text), &sent); err != nil || sent.Method != "server/discover" {
		t.Errorf("text of the record: got %q", records[1].Text)
	}
}
