module github.com/mcpproxy/mcpproxy

go 1.26
