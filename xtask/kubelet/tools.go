//go:build tools

// Package tools names the program that `cargo xtask setup --kubelet` builds, so that `go mod tidy` keeps the modules (and
// checksums) it needs. It is never compiled.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kubelet"
)
