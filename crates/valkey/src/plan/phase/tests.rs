use super::*;
use proptest::prelude::*;
use usher_engine::fsm::Refused;

/// Facts in which nothing but this hop's event and guard holds.
fn only(hop: Hop) -> Facts {
    use Happening as H;
    let no = Facts::default();
    match hop.event {
        H::DeletionRequested => Facts {
            deletion_requested: true,
            ..no
        },
        H::ReconcileError => Facts { failure: true, ..no },
        H::PodsLost => Facts { pods_lost: true, ..no },
        H::RecoveryInitiated => Facts { recovery: true, ..no },
        H::ResourcesApplied => Facts {
            resources_applied: true,
            ..no
        },
        H::StatefulSetReady => Facts { set_ready: true, ..no },
        H::PodsRunning => Facts {
            pods_running: true,
            ..no
        },
        H::ClusterMeetComplete => Facts {
            met: true,
            agreed: true,
            ..no
        },
        H::SlotsAssigned => Facts {
            slots_assigned: true,
            ..no
        },
        H::ReplicasConfigured => Facts {
            replicas_configured: true,
            ..no
        },
        H::SpecChanged if hop.from == Running => Facts {
            spec_changed: true,
            ..no
        },
        H::SpecChanged => Facts { resized: true, ..no },
        H::ReplicasDegraded => Facts { degraded: true, ..no },
        H::ScaleUpDetected => Facts {
            grow: true,
            may_change: true,
            ..no
        },
        H::ScaleDownDetected if hop.from == RemovingNodesFromCluster => Facts {
            leaving_owns: true,
            ..no
        },
        H::ScaleDownDetected => Facts {
            shrink: true,
            may_change: true,
            ..no
        },
        H::ReplicaScaleDownDetected => Facts {
            shed: true,
            may_change: true,
            ..no
        },
        H::StatefulSetScaled if hop.from == ScalingUpStatefulSet => Facts { set_grown: true, ..no },
        H::StatefulSetScaled => Facts { set_shrunk: true, ..no },
        H::NodesAdded => Facts {
            nodes_added: true,
            ..no
        },
        H::SlotsRebalanced => Facts { rebalanced: true, ..no },
        H::SlotsMigrated => Facts {
            rebalanced: true,
            evacuated: true,
            ..no
        },
        H::NodesRemoved => Facts {
            nodes_removed: true,
            ..no
        },
        H::ClusterHealthy => Facts {
            healthy: true,
            slots_assigned: true,
            ..no
        },
    }
}

const HAPPENINGS: [Happening; 21] = [
    Happening::ResourcesApplied,
    Happening::StatefulSetReady,
    Happening::PodsRunning,
    Happening::ClusterMeetComplete,
    Happening::SlotsAssigned,
    Happening::ReplicasConfigured,
    Happening::ClusterHealthy,
    Happening::SpecChanged,
    Happening::ScaleUpDetected,
    Happening::ScaleDownDetected,
    Happening::ReplicaScaleDownDetected,
    Happening::StatefulSetScaled,
    Happening::NodesAdded,
    Happening::SlotsRebalanced,
    Happening::SlotsMigrated,
    Happening::NodesRemoved,
    Happening::ReplicasDegraded,
    Happening::ReconcileError,
    Happening::RecoveryInitiated,
    Happening::PodsLost,
    Happening::DeletionRequested,
];

#[test]
fn i7_every_row_is_walked_by_the_facts_that_it_names() {
    for hop in TABLE.hops() {
        assert_eq!(TABLE.next(hop.from, &only(hop)), Some(hop), "{hop:?}");
        assert_eq!(TABLE.take(hop.from, hop.event, &only(hop)), Ok(hop.to), "{hop:?}");
    }
}

#[test]
fn i7_what_the_table_lacks_cannot_be_taken() {
    let mut refused = 0;
    for from in Phase::ALL {
        for event in HAPPENINGS {
            if TABLE.hops().any(|hop| hop.from == from && hop.event == event) {
                continue;
            }
            let answer = TABLE.take(from, event, &Facts::default());
            assert!(
                matches!(answer, Err(Refused::NotListed { .. })),
                "{from} {event:?}: {answer:?}"
            );
            refused += 1;
        }
    }
    assert_eq!(refused + pairs(), Phase::ALL.len() * HAPPENINGS.len());
}

/// How many pairs of phase and event the table lists.
fn pairs() -> usize {
    let mut pairs: Vec<_> = TABLE.hops().map(|hop| (hop.from, hop.event)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.len()
}

#[test]
fn every_phase_can_be_reached_and_only_deleting_is_an_end() {
    for phase in Phase::ALL {
        let reached = TABLE.hops().any(|hop| hop.to == phase);
        assert!(reached, "{phase}");
        let left = TABLE.hops().any(|hop| hop.from == phase);
        assert_eq!(left, phase != Deleting, "{phase}");
    }
}

fn ways(from: Phase, facts: Facts) -> Vec<Phase> {
    let hops = run(from, |_, _| facts, |_| false);
    hops.iter().map(|hop| hop.to).collect()
}

const WELL: Facts = Facts {
    deletion_requested: false,
    failure: false,
    recovery: false,
    pods_lost: false,
    resources_applied: true,
    set_ready: true,
    pods_running: true,
    met: true,
    agreed: true,
    slots_assigned: true,
    replicas_configured: true,
    healthy: true,
    degraded: false,
    spec_changed: false,
    resized: false,
    may_change: true,
    may_surge: false,
    grow: false,
    shrink: false,
    shed: false,
    set_grown: true,
    set_shrunk: true,
    nodes_added: true,
    rebalanced: true,
    evacuated: true,
    leaving_owns: false,
    nodes_removed: true,
};

#[test]
fn recovery_over_a_formed_cluster_walks_the_table_in_one_pass() {
    let facts = Facts { recovery: true, ..WELL };
    assert_eq!(
        ways(Failed, facts),
        [
            Pending,
            Creating,
            WaitingForPods,
            InitializingCluster,
            AssigningSlots,
            ConfiguringReplicas,
            VerifyingClusterHealth,
            Running
        ]
    );
}

#[test]
fn a_failure_that_lasts_is_failed_again_in_the_same_pass() {
    let facts = Facts {
        recovery: true,
        failure: true,
        ..WELL
    };
    assert_eq!(ways(Failed, facts), [Pending, Failed]);
}

#[test]
fn r6_a_superseded_scale_is_verified_and_goes_the_right_way_in_the_same_pass() {
    let facts = |_, hops: &[Hop]| Facts {
        resized: !hops.iter().any(begins_scale),
        shrink: true,
        rebalanced: false,
        ..WELL
    };
    let hops = run(RebalancingSlots, facts, |phase| phase == EvacuatingSlots);
    let ways: Vec<Phase> = hops.iter().map(|hop| hop.to).collect();
    assert_eq!(ways, [VerifyingClusterHealth, EvacuatingSlots]);
}

#[test]
fn r13_growing_comes_before_shrinking() {
    let facts = Facts {
        grow: true,
        shrink: true,
        set_grown: false,
        ..WELL
    };
    assert_eq!(ways(Running, facts), [ScalingUpStatefulSet]);
}

#[test]
fn r5_nothing_begins_while_it_may_not_change() {
    let facts = Facts {
        grow: true,
        shrink: true,
        shed: true,
        may_change: false,
        ..WELL
    };
    assert_eq!(ways(Running, facts), []);
    let surge = Facts {
        may_surge: true,
        set_grown: false,
        ..facts
    };
    assert_eq!(
        ways(Running, surge),
        [ScalingUpStatefulSet],
        "R36: the spare pod needs less"
    );
}

#[test]
fn a_phase_with_work_is_not_left_but_for_what_stops_it() {
    let hops = run(RebalancingSlots, |_, _| WELL, |_| true);
    assert_eq!(hops, []);
    let degraded = Facts {
        degraded: true,
        healthy: false,
        ..WELL
    };
    let hops = run(RebalancingSlots, |_, _| degraded, |_| true);
    assert_eq!(hops.last().map(|hop| hop.to), Some(Degraded));
}

#[test]
fn a_loss_holds_what_would_begin_until_somebody_asks_for_another_size() {
    let held = Facts {
        degraded: true,
        healthy: false,
        grow: true,
        set_grown: false,
        ..WELL
    };
    assert_eq!(ways(Degraded, held), []);
    let asked = |phase: Phase, hops: &[Hop]| Facts {
        // In a scale a lost pod counts only after a minute.
        degraded: !phase.is_scaling(),
        resized: !hops.iter().any(begins_scale),
        ..held
    };
    let hops = run(Degraded, asked, |phase| phase == ScalingUpStatefulSet);
    assert_eq!(hops.last().map(|hop| hop.to), Some(ScalingUpStatefulSet));
}

#[test]
fn the_page_has_the_table_that_runs() {
    let page = include_str!("../../../../../docs/valkey.md");
    let note = "Generated by `cargo xtask generate`; do not edit.";
    assert!(
        page == super::page(note),
        "docs/valkey.md is not what the table says: cargo xtask generate"
    );
}

fn facts() -> impl Strategy<Value = Facts> {
    prop::collection::vec(any::<bool>(), 28).prop_map(|bits| {
        let mut bits = bits.into_iter();
        let mut bit = || bits.next().unwrap_or_default();
        Facts {
            deletion_requested: bit() && bit(),
            failure: bit() && bit(),
            recovery: bit(),
            pods_lost: bit() && bit(),
            resources_applied: bit(),
            set_ready: bit(),
            pods_running: bit(),
            met: bit(),
            agreed: bit(),
            slots_assigned: bit(),
            replicas_configured: bit(),
            healthy: bit(),
            degraded: bit(),
            spec_changed: bit(),
            resized: bit(),
            may_change: bit(),
            may_surge: bit(),
            grow: bit(),
            shrink: bit(),
            shed: bit(),
            set_grown: bit(),
            set_shrunk: bit(),
            nodes_added: bit(),
            rebalanced: bit(),
            evacuated: bit(),
            leaving_owns: bit(),
            nodes_removed: bit(),
        }
    })
}

proptest! {
    #[test]
    fn i7_whatever_is_true_a_pass_moves_along_the_table_and_ends(facts in facts(), from in 0usize..19) {
        let from = Phase::ALL[from];
        let hops = run(from, |_, _| facts, |_| false);
        prop_assert!(hops.len() <= HOPS_MAX);
        let mut at = from;
        for hop in &hops {
            prop_assert_eq!(hop.from, at);
            prop_assert!(TABLE.lists(*hop), "{:?}", hop);
            at = hop.to;
        }
        if facts.deletion_requested {
            prop_assert_eq!(at, Deleting);
        }
    }
}
