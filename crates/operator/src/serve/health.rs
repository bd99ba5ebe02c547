//! What the operator says of itself: whether it lives, and what it still lacks to be useful.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Shared by all parts of the operator; a clone is a handle on the same state. Parts report, probes read.
#[derive(Debug, Clone, Default)]
pub struct Health {
    state: Arc<RwLock<State>>,
}

#[derive(Debug, Default)]
struct State {
    parts: BTreeMap<&'static str, Result<(), String>>,
    dead: Option<String>,
}

impl Health {
    /// Alive, and not ready: no part has reported yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How `part` stands now. A part that has once reported counts until the end, so a part that will take a while
    /// should say so first (`Err("reading SubnetPools")`).
    pub fn set(&self, part: &'static str, standing: Result<(), String>) {
        self.write(|state| {
            state.parts.insert(part, standing);
        });
    }

    /// Ready when every part that ever reported is; else what is missing, one line each.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        self.read(|state| {
            if let Some(problem) = &state.dead {
                return Err(vec![problem.clone()]);
            }
            if state.parts.is_empty() {
                return Err(vec!["starting: no part has reported yet".to_owned()]);
            }
            let missing: Vec<String> = state
                .parts
                .iter()
                .filter_map(|(part, standing)| standing.as_ref().err().map(|why| format!("{part}: {}", one_line(why))))
                .collect();
            if missing.is_empty() { Ok(()) } else { Err(missing) }
        })
    }

    /// Something ended that cannot be started again in this process: only a restart helps, and `/healthz` asks for it.
    /// The first reason is kept.
    pub fn end(&self, why: impl Into<String>) {
        let why = why.into();
        self.write(|state| {
            state.dead.get_or_insert(why);
        });
    }

    /// Whether the process is worth keeping, else why not.
    pub fn alive(&self) -> Result<(), String> {
        self.read(|state| state.dead.clone().map_or(Ok(()), Err))
    }

    // A writer that panicked left a whole map behind: each change is one insert. So poison is no reason to stop answering.
    fn write<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
