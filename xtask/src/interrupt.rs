//! Ctrl-C and friends: the handlers only raise a flag, and every loop that waits looks at it, so that whoever started a
//! process stops it before leaving. `kill -9` cannot be seen here; `k8s::guard` is for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Result};

static RAISED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

pub(crate) fn install() -> Result<()> {
    let flag = RAISED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).map_err(Error::io("install signal handlers"))?;
    }
    Ok(())
}

pub(crate) fn check() -> Result<()> {
    match RAISED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// A pause between two looks at a condition.
pub(crate) fn pause(time: Duration) -> Result<()> {
    check()?;
    std::thread::sleep(time);
    check()
}
