//! Who the program is: uid, groups, and which of root's powers it has.
//!
//! With root the wanted ids are set as they are, and uid 0 keeps what container runtimes leave it, which is nothing
//! that reaches out of the container. Without root there is one id: the wanted one inside, ours outside (N4).

use std::fs;
use std::os::fd::OwnedFd;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use super::{Failure, gives_ids};
use crate::node::supervisor::control::Order;
use crate::node::supervisor::protocol::Isolation;

/// What uid 0 keeps in a container. The usual set of container runtimes without making device files and raw sockets:
/// volumes are on the host's disk, and pods share the host's network.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::AUDIT_WRITE);

/// Maps one id each into the user namespace that this process has just made.
pub(super) fn map(uid_inside: u32, uid_outside: u32, gid_inside: u32, gid_outside: u32) -> Result<(), Failure> {
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(Failure::of(format_args!("cannot write /proc/self/{file}")))
    };
    // Without this a group could be shed that forbids something.
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{uid_inside} {uid_outside} 1"))?;
    write("gid_map", format!("{gid_inside} {gid_outside} 1"))
}

/// Becomes the wanted user, for good. `joined` is the user namespace of the container beside which this will run.
pub(super) fn become_user(order: &Order, joined: Option<OwnedFd>) -> Result<(), Failure> {
    if let Some(namespace) = joined {
        return setns(&namespace, CloneFlags::CLONE_NEWUSER)
            .map_err(Failure::of("cannot join the container's user namespace"));
    }
    if gives_ids(order.isolation) {
        return set_ids(order);
    }
    if order.isolation == Isolation::NamespacesAsUser {
        // A second user namespace: the mounts belong to the first, so that no uid 0 of the container can undo them.
        unshare(CloneFlags::CLONE_NEWUSER).map_err(Failure::of("cannot make the container's user namespace"))?;
        return map(order.uid, 0, order.gid, 0);
    }
    if order.isolation == Isolation::Bubblewrap {
        return give_up_powers();
    }
    Ok(())
}

/// What this process may do in its namespace, the program that it executes next may do too, whatever its uid. Only for
/// a stage that gives all of it up again ([`give_up_powers`]).
pub(super) fn keep_powers_across_execution() {
    let Ok(sets) = capabilities(None) else { return };
    let inheritable = sets.permitted;
    if set_capabilities(None, CapabilitySets { inheritable, ..sets }).is_ok() {
        for power in inheritable.iter() {
            let _ = configure_capability_in_ambient_set(power, true);
        }
    }
}

/// None is left to this process nor to anything that it executes, be it uid 0.
fn give_up_powers() -> Result<(), Failure> {
    for power in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(power);
    }
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()
        .and_then(|()| {
            set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            )
        })
        .map_err(Failure::of("cannot give up the powers of the user namespace"))
}

fn set_ids(order: &Order) -> Result<(), Failure> {
    for power in CapabilitySet::all().difference(KEPT).iter() {
        // Refused only for powers that this kernel does not know or that we do not have ourselves.
        let _ = remove_capability_from_bounding_set(power);
    }
    let groups: Vec<Gid> = order.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(order.uid), Gid::from_raw(order.gid));
    setgroups(&groups)
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(Failure::of(format_args!("cannot become user {uid}, group {gid}")))
}
