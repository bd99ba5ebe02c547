//go:build tools

// Package tools names the program that `cargo xtask setup` builds, so that the modules (and checksums) it needs are kept.
// It is never compiled.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
