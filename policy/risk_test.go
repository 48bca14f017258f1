package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/policy"
)

func item(name, annotations, description string) *index.Item {
	raw := `{"name":"x"}`
	if annotations != "" {
		raw = `{"name":"x","annotations":` + annotations + `}`
	}
	return &index.Item{Ref: tool("s", name), Description: description, Raw: json.RawMessage(raw)}
}

// Annotations as servers write them.
const (
	ro     = `{"readOnlyHint":true}`
	roSafe = `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`
	notRO  = `{"readOnlyHint":false}`
	adds   = `{"readOnlyHint":false,"destructiveHint":false}`
	wrecks = `{"readOnlyHint":false,"destructiveHint":true}`
	bare   = `{"destructiveHint":true}`
	tame   = `{"destructiveHint":false}`
	open   = `{"openWorldHint":true}`
)

func TestAssess(t *testing.T) {
	for _, tt := range []struct {
		name, annotations, description string
		want                           policy.Risk
		conflict                       bool
	}{
		// real tools: names and annotations as their servers list them
		{"list_records", ro, "", policy.Read, false},
		{"generate_bar_chart", ro, "Generate a horizontal bar chart", policy.Read, false},
		{"get_application_workload_logs", "", "", policy.Read, false},
		{"run_resource_action", "", "run_resource_action runs an action on a resource", policy.Unknown, false},
		{"sync_application", "", "", policy.Write, false},
		{"delete_application", "", "", policy.Destructive, false},
		{"compute_disk_create", wrecks, "", policy.Destructive, false},
		{"deploy_app_logs_get", roSafe, "", policy.Read, false},
		{"communication_email_send", roSafe, "Send emails to one or more recipients", policy.Write, true},
		{"managedlustre_fs_blob_import_delete", wrecks, "", policy.Destructive, false},
		{"brave_web_search", open, "", policy.Read, false},
		{"addPercySnapshotCommands", roSafe, "", policy.Write, true},
		{"takeAppScreenshot", adds, "", policy.Write, false},
		{"listTestRuns", ro, "", policy.Read, false},
		{"get_network_request", notRO, "", policy.Write, true},
		{"evaluate_script", notRO, "", policy.Write, false},
		{"schedule_downtime", "", "", policy.Write, false},
		{"mute_host", "", "", policy.Write, false},
		{"execute_sql", wrecks, "", policy.Destructive, false},
		{"kill_process", wrecks, "", policy.Destructive, false},
		{"lint-files", "", "", policy.Read, false},
		{"directory_tree", ro, "", policy.Read, false},
		{"git_reset", notRO, "Reset current HEAD", policy.Destructive, false},
		{"git_clean", notRO, "Remove untracked files", policy.Destructive, false},
		{"git_log", ro, "", policy.Read, false},
		{"create_or_update_file", "", "", policy.Write, false},
		{"push_files", "", "", policy.Write, false},
		{"fork_repository", "", "", policy.Write, false},
		{"merge_pull_request", "", "", policy.Write, false},
		{"get_pull_request_comments", "", "", policy.Read, false},
		{"list_merge_request_diffs", "", "", policy.Read, false},
		{"jira_get", "", "", policy.Read, false},
		{"jira_post", "", "", policy.Write, false},
		{"jira_delete", "", "", policy.Destructive, false},
		{"kubectl_apply", wrecks, "", policy.Destructive, false},
		{"kubectl_rollout", bare, "", policy.Destructive, false},
		{"pods_log", roSafe, "", policy.Read, false},
		{"bitable_v1_appTableRecord_update", "", "", policy.Write, false},
		{"contact_v3_user_batchGetId", "", "", policy.Read, false},
		{"ReverseGeocodeTool", "", "Find addresses near a position", policy.Read, false},
		{"IsochroneTool", "", "Computes areas that are reachable", policy.Read, false},
		{"mobile_terminate_app", adds, "", policy.Destructive, true},
		{"drop-collection", wrecks, "", policy.Destructive, false},
		{"API-post-search", bare, "", policy.Destructive, true},
		{"API-retrieve-a-page", ro, "", policy.Read, false},
		{"open_nodes", roSafe, "", policy.Read, false},
		{"query", "", "Run a read-only SQL query", policy.Read, false},
		{"remove-account", "", "", policy.Destructive, false},
		{"create-reply-draft", wrecks, "", policy.Destructive, false},
		{"slack_post_message", "", "", policy.Write, false},
		{"slack_get_thread_replies", "", "", policy.Read, false},
		{"tavily_extract", "", "", policy.Read, false},

		// identifiers of all kinds
		{"deleteUser", "", "", policy.Destructive, false},
		{"HTTPDelete", "", "", policy.Destructive, false},
		{"users.delete", "", "", policy.Destructive, false},
		{"users/list", "", "", policy.Read, false},
		{"list_deleted_items", "", "", policy.Read, false},
		{"get_delete_status", "", "", policy.Read, false},
		{"search_and_destroy", "", "", policy.Destructive, false},
		{"find_and_replace", "", "", policy.Write, false},
		{"update_or_delete_row", "", "", policy.Destructive, false},
		{"bulk_manage_delete", "", "", policy.Destructive, false},
		{"undelete", "", "", policy.Write, false},
		{"run_query", "", "Queries things", policy.Unknown, false},
		{"", "", "", policy.Unknown, false},
		{"löschen", "", "", policy.Unknown, false},

		// annotations against names
		{"delete_all", ro, "", policy.Destructive, true},
		{"delete_all", tame, "", policy.Destructive, true},
		{"delete_all", notRO, "", policy.Destructive, false},
		{"get_x", wrecks, "", policy.Destructive, true},
		{"get_x", tame, "", policy.Read, false},
		{"x", `{"readOnlyHint":true,"destructiveHint":true}`, "", policy.Read, false},
		{"x", `{"readOnlyHint":"true"}`, "", policy.Unknown, false},
		{"x", `[]`, "", policy.Unknown, false},
		{"x", `{"readOnlyHint":null,"destructiveHint":null}`, "Lists x", policy.Read, false},

		// descriptions
		{"x", "", "Lists all x", policy.Read, false},
		{"x", "", "Fetches x", policy.Read, false},
		{"x", "", "Modifies x", policy.Write, false},
		{"x", "", "This tool can be used to delete x", policy.Destructive, false},
		{"x", "", "**Creating** x", policy.Write, false},
		{"x", "", "Everything about x. Deletes nothing.", policy.Unknown, false},
	} {
		got := policy.Assess(item(tt.name, tt.annotations, tt.description))
		if want := (policy.Assessment{Risk: tt.want, Conflict: tt.conflict}); got != want {
			t.Errorf("%s %s %q: got %+v, want %+v", tt.name, tt.annotations, tt.description, got, want)
		}
	}
}

func TestRepeatable(t *testing.T) {
	for _, tt := range []struct {
		annotations string
		want        bool
	}{
		{"", false}, {ro, true}, {`{"idempotentHint":true}`, true}, {`{"idempotentHint":true,"destructiveHint":true}`, true},
		{adds, false}, {`{"readOnlyHint":false,"idempotentHint":false}`, false}, {`{"readOnlyHint":1}`, false}, {`"x"`, false},
	} {
		if got := policy.Repeatable(item("get_x", tt.annotations, "")); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.annotations, got, tt.want)
		}
	}
}
