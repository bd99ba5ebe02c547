//! The acceptance cases are run twice: by `acceptance` on a usual control plane, by `acceptance_bare` on one without
//! kube-controller-manager. What a case cannot do there is in the one list below, with the reason.

/// Whether this test program is the one that runs without kube-controller-manager.
pub const IS_BARE: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"acceptance_bare");

/// Cases that are about what kube-controller-manager does. Each begins with [`left_out`]; `acceptance_bare` holds this list
/// and the cases to each other.
pub const LEFT_OUT: &[(&str, &str)] = &[
    (
        "a14_a_labelled_pool_deleted_in_the_foreground_goes_and_its_holder_after_it",
        "the garbage collector takes off the finalizer that foreground deletion puts on",
    ),
    (
        "a25_a_namespace_with_everything_in_it_can_be_deleted",
        "the namespace controller deletes what is in a namespace, and takes off the namespace's finalizer",
    ),
    (
        "a28_a_claim_deleted_in_any_way_gives_its_range_back_when_its_subnet_is_gone",
        "the garbage collector takes off the finalizers that foreground and orphan deletion put on",
    ),
];

/// Whether the case of this name is left out here; it then says so and returns.
pub fn left_out(case: &str) -> bool {
    let reason = LEFT_OUT
        .iter()
        .find(|(name, _)| *name == case)
        .map(|(_, reason)| reason);
    let reason = reason.unwrap_or_else(|| panic!("{case} is not in LEFT_OUT: add it there, with the reason"));
    if IS_BARE {
        println!("{case} is left out without kube-controller-manager: {reason}");
    }
    IS_BARE
}
