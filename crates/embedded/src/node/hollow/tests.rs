//! Hollow nodes in a manual cluster.
