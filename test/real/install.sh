#!/bin/sh
# Installs what the tests against real servers need: the npm packages of package-lock.json here, and Chromium. It does
# nothing when all is there.
set -eu
cd "$(dirname "$0")"

major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt 20 ] || ! command -v npm >/dev/null; then
	echo "test/real needs Node.js 20 or later with npm (found: $(node --version 2>/dev/null || echo none)); install it and try again" >&2
	exit 1
fi

found=
for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then
		found=$name
	fi
done
if [ -z "$found" ]; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "test/real needs Chromium; install it (Debian: sudo apt-get install chromium) and try again" >&2
		exit 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi

# npm writes this file last; an interrupted installation leaves an old one or none.
if [ node_modules/.package-lock.json -nt package-lock.json ]; then
	exit 0
fi
PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 PUPPETEER_SKIP_DOWNLOAD=1 npm ci --no-audit --no-fund --loglevel=error
touch node_modules/.package-lock.json
