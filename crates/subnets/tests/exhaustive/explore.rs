//! Breadth-first search of a small world: every state that can be reached with so many writes, each looked at once.
//!
//! Layer by layer: layer n holds what needs n writes to be reached, closed under everything that is no write (an operator
//! catching up, a decision being made). So the first violation found has the fewest writes possible, and a layer without
//! anything new means that more writes lead nowhere new either.

use std::time::{Duration, Instant};

/// A state, packed. Worlds know how; here it is a number.
pub type State = u128;

/// One thing that may happen.
#[derive(Debug, Clone, Copy)]
pub struct Move<T> {
    /// What happens.
    pub what: T,
    /// What the world is like then.
    pub to: State,
    /// A rule that this move itself breaks, whatever the state after it.
    pub breaks: Option<&'static str>,
}

/// A small world.
pub trait World {
    /// What can happen.
    type What: Copy;

    /// Where it begins.
    fn start(&self) -> State;

    /// What may happen without a write to the API server.
    fn quiet(&mut self, at: State, moves: &mut Vec<Move<Self::What>>);

    /// The writes that may happen.
    fn writes(&mut self, at: State, moves: &mut Vec<Move<Self::What>>);

    /// Which invariant does not hold here.
    fn broken(&self, at: State) -> Option<String>;

    /// What happens on a way from the start, for people: a line each.
    fn story(&mut self, way: &[Self::What]) -> Vec<String>;
}

/// What a search found.
#[derive(Debug)]
pub struct Outcome {
    /// The states, in the order of their discovery.
    pub states: Vec<State>,
    /// How many need no write, one write, and so on.
    pub layers: Vec<usize>,
    /// Nothing new is reachable, with however many writes.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
    /// The shortest way to a violation, if there is one.
    pub violation: Option<Story>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (states, writes, took) = (self.states.len(), self.layers.len() - 1, self.took.as_secs_f32());
        let end = if self.complete {
            ", and more lead nowhere new"
        } else {
            ""
        };
        write!(f, "{states} states in {took:.1} s, up to {writes} writes{end}")
    }
}

/// A way from the start to a violation.
#[derive(Debug)]
pub struct Story {
    /// How many writes it takes.
    pub writes: usize,
    /// What happens, in order.
    pub lines: Vec<String>,
    /// What does not hold at its end.
    pub broken: String,
}

impl std::fmt::Display for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, line) in self.lines.iter().enumerate() {
            writeln!(f, "  {:>2}. {line}", n + 1)?;
        }
        write!(f, "  => {}", self.broken)
    }
}

/// States seen, in the order of their discovery, each with the one it was reached from.
struct Seen {
    states: Vec<State>,
    from: Vec<u32>,
    /// Open addressing: places in `states`, plus one; zero is free.
    table: Vec<u32>,
}

impl Seen {
    fn new(start: State) -> Self {
        let mut seen = Self {
            states: Vec::new(),
            from: Vec::new(),
            table: vec![0; 1 << 12],
        };
        seen.insert(start, 0);
        seen
    }

    fn place(state: State, mask: usize) -> usize {
        let mixed = (state as u64 ^ ((state >> 64) as u64).rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 20) as usize & mask
    }

    /// Says whether it is new.
    fn insert(&mut self, state: State, from: u32) -> bool {
        if self.states.len() * 10 > self.table.len() * 6 {
            let mask = self.table.len() * 2 - 1;
            let mut table = vec![0; mask + 1];
            for (at, known) in self.states.iter().enumerate() {
                let mut place = Self::place(*known, mask);
                while table[place] != 0 {
                    place = (place + 1) & mask;
                }
                table[place] = at as u32 + 1;
            }
            self.table = table;
        }
        let mask = self.table.len() - 1;
        let mut place = Self::place(state, mask);
        loop {
            match self.table[place] {
                0 => break,
                known if self.states[known as usize - 1] == state => return false,
                _ => place = (place + 1) & mask,
            }
        }
        self.states.push(state);
        self.from.push(from);
        self.table[place] = self.states.len() as u32;
        assert!(
            self.states.len() < u32::MAX as usize,
            "more states than this search can count"
        );
        true
    }
}

/// Looks at everything that can be reached with at most `writes` writes; ends at the first violation.
pub fn explore<W: World>(world: &mut W, writes: usize) -> Outcome {
    let begun = Instant::now();
    let mut seen = Seen::new(world.start());
    let (mut moves, mut layers) = (Vec::new(), Vec::new());
    let mut first = 0;
    let mut violation = None;
    let mut complete = false;
    'search: for written in 0..=writes {
        // First everything this layer can reach without a write …
        let mut at = first;
        while at < seen.states.len() {
            world.quiet(seen.states[at], &mut moves);
            if let Some(story) = take_in(world, &mut seen, &mut moves, at, written) {
                violation = Some(story);
                layers.push(seen.states.len() - first);
                break 'search;
            }
            at += 1;
        }
        layers.push(seen.states.len() - first);
        if written == writes {
            break;
        }
        // … then one write further.
        let last = seen.states.len();
        for at in first..last {
            world.writes(seen.states[at], &mut moves);
            if let Some(story) = take_in(world, &mut seen, &mut moves, at, written + 1) {
                violation = Some(story);
                layers.push(seen.states.len() - last);
                break 'search;
            }
        }
        first = last;
        if seen.states.len() == last {
            complete = true;
            break;
        }
    }
    Outcome {
        states: seen.states,
        layers,
        complete,
        took: begun.elapsed(),
        violation,
    }
}

/// Keeps what is new among `moves` from the state at `at`. A violation ends it, with its story.
fn take_in<W: World>(
    world: &mut W,
    seen: &mut Seen,
    moves: &mut Vec<Move<W::What>>,
    at: usize,
    writes: usize,
) -> Option<Story> {
    for Move { what, to, breaks } in moves.drain(..) {
        let new = seen.insert(to, at as u32);
        let broken = breaks
            .map(str::to_owned)
            .or_else(|| new.then(|| world.broken(to)).flatten());
        if let Some(broken) = broken {
            let mut way = way(world, seen, at);
            way.push(what);
            let lines = world.story(&way);
            return Some(Story { writes, lines, broken });
        }
    }
    None
}

/// What happened on the way to the state at `to`.
fn way<W: World>(world: &mut W, seen: &Seen, mut to: usize) -> Vec<W::What> {
    let (mut way, mut moves) = (Vec::new(), Vec::new());
    while to != 0 {
        let from = seen.from[to] as usize;
        world.quiet(seen.states[from], &mut moves);
        world.writes(seen.states[from], &mut moves);
        let step = moves.drain(..).find(|step| step.to == seen.states[to]);
        way.push(step.expect("the way here is still a way").what);
        to = from;
    }
    way.reverse();
    way
}
