# make test is the one command that checks everything; it installs what it needs from files in the repository.
.PHONY: build test bench deps vet lint unit clean

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/mcpproxy ./cmd/mcpproxy

test: deps vet lint unit

# The npm servers and the browser that the end-to-end tests talk to.
deps:
	test/real/install.sh

vet:
	go vet ./...
	GOOS=darwin go vet ./...
	GOOS=windows go vet ./...

lint:
	@test -z "$$(gofmt -l .)" || { echo "not formatted (gofmt -w .):"; gofmt -l .; exit 1; }
	go tool staticcheck ./...

unit:
	go test -race -count=1 -timeout 15m ./...

# Start, memory, wire, index and search, as figures; nothing here can fail.
bench:
	go test -run "^$$" -bench . -benchtime 3x ./test
	go test -run "^$$" -bench . ./jsonrpc ./index ./upstream ./proxy

clean:
	rm -rf bin test/real/node_modules
