//! The scheduler on values and in a manual cluster.
