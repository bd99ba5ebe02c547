//! The address map at its size: a million live blocks. What a grant, a release, all counts and a rebuild cost, and what
//! the map weighs.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use usher_subnets::plan::map::{AddressMap, Fit};

use crate::error::{Error, Result};
use crate::process;
use crate::report::Row;

/// As big as the operator's own holder: a kind and a uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Subnet([u8; 16]),
    Grant([u8; 16]),
}

impl Who {
    fn subnet(n: usize) -> Who {
        Who::Subnet((n as u128).to_be_bytes())
    }

    fn grant(n: usize) -> Who {
        Who::Grant((n as u128).to_be_bytes())
    }
}

const CASES: [(&str, &str, u8, Fit); 4] = [
    ("IPv4 linear", "10.0.0.0/8", 28, Fit::First),
    ("IPv4 buddy", "10.0.0.0/8", 28, Fit::Best),
    ("IPv6 linear", "2001:db8::/32", 64, Fit::First),
    ("IPv6 buddy", "2001:db8::/32", 64, Fit::Best),
];
/// The worst that exact requests can do: blocks without neighbours. No budget, but good to know.
const SCATTERED: &str = "IPv6 scattered";

/// What one case came to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) case: String,
    /// Nanoseconds of one, by what it is.
    nanoseconds: Vec<(String, f64)>,
    /// Seconds of the whole.
    seconds: Vec<(String, f64)>,
    megabytes: Vec<(String, f64)>,
    /// The map was right at the end.
    right: bool,
}

/// Measures all cases. Each runs in a process of its own: memory that one has freed would hide what the next one takes.
pub(crate) fn all(live: usize) -> Result<Vec<Figures>> {
    let myself = std::env::current_exe().map_err(Error::io("find this program"))?;
    let names = CASES.iter().map(|(name, ..)| *name).chain([SCATTERED]);
    names.map(|name| in_a_process(&myself, name, live)).collect()
}

fn in_a_process(myself: &Path, case: &str, live: usize) -> Result<Figures> {
    let output = Command::new(myself)
        .args(["map", "--live", &live.to_string(), "--case", case])
        .output()
        .map_err(Error::at("start", myself))?;
    serde_json::from_slice(&output.stdout).map_err(|e| Error::Program {
        program: format!("the map's case {case:?}"),
        said: format!("{e}; {}", String::from_utf8_lossy(&output.stderr)),
    })
}

/// One case, in this process.
pub(crate) fn one(case: &str, live: usize) -> Result<Figures> {
    let mut figures = Figures {
        case: case.to_owned(),
        ..Figures::default()
    };
    let known = CASES.iter().find(|(name, ..)| *name == case);
    match known.and_then(|(_, base, length, fit)| Some((base.parse().ok()?, *length, *fit))) {
        Some((base, length, fit)) => figures.measure(base, length, fit, live),
        None if case == SCATTERED => figures.scattered(live),
        None => return Err(Error::Wrong(format!("there is no case {case:?} of the map"))),
    }
    Ok(figures)
}

/// The rows of the report: of each budget, the worst over all cases that have it.
pub(crate) fn rows(all: &[Figures]) -> Vec<Row> {
    let budgeted: Vec<&Figures> = all.iter().filter(|figures| figures.case != SCATTERED).collect();
    let worst = |pick: fn(&Figures) -> &Vec<(String, f64)>, words: &[&str]| {
        let values = budgeted
            .iter()
            .flat_map(|figures| pick(figures).iter().map(|value| (&figures.case, value)));
        let values = values.filter(|(_, (what, _))| words.iter().any(|word| what.starts_with(word)));
        values
            .max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b))
            .map(|(case, (what, value))| (format!("{case}: {what}"), *value))
    };
    let row = |name: &str, unit, worst: Option<(String, f64)>, scale: f64, most: f64| {
        let (where_, value) = worst.unwrap_or_default();
        Row::new(name, unit, vec![value * scale])
            .at_most(most)
            .note(format!("worst: {where_}"))
    };
    let wrong = all.iter().filter(|figures| !figures.right).count();
    vec![
        row(
            "map: grant or release",
            "us",
            worst(|f| &f.nanoseconds, &["grant", "release", "overlay"]),
            1e-3,
            1.0,
        ),
        row(
            "map: counts of all sizes",
            "us",
            worst(|f| &f.nanoseconds, &["counts"]),
            1e-3,
            2.0,
        ),
        row(
            "map: rebuild",
            "s",
            worst(|f| &f.seconds, &["rebuild", "load"]),
            1.0,
            2.0,
        ),
        row("map: memory", "MB", worst(|f| &f.megabytes, &["memory"]), 1.0, 64.0),
        Row::new("map: cases that end wrong", "", vec![wrong as f64]).at_most(0.0),
    ]
}

impl Figures {
    fn measure(&mut self, base: IpNet, len: u8, fit: Fit, live: usize) {
        let mut held: Vec<(IpNet, Who)> = (0..live).map(|n| (base, Who::subnet(n))).collect();
        let before = resident();
        let mut map = AddressMap::new(base);

        self.each("grant, filling", live, || {
            held.iter_mut().for_each(|holding| grant(&mut map, len, fit, holding))
        });
        self.weigh("memory, filled in order", before);

        shuffle(&mut held);
        // Two operations each.
        self.each("release and grant, random", live * 2, || {
            for holding in &mut held {
                map.release(holding.0, &holding.1);
                grant(&mut map, len, fit, holding);
            }
        });
        self.each("hand over, random", live * 2, || {
            for (n, (net, who)) in held.iter().enumerate() {
                map.hold(*net, Who::grant(n));
                map.release(*net, who);
                map.hold(*net, *who);
                map.release(*net, &Who::grant(n));
            }
        });
        let (_, half) = held.split_at_mut(live / 2);
        self.each("release half, random", half.len(), || {
            for (net, who) in half.iter() {
                map.release(*net, who);
            }
        });
        self.weigh("memory, half full", before);
        let mut overlay = map.overlay();
        self.each("overlay of 512 grants", 512, || {
            for _ in 0..512 {
                black_box(overlay.take(len, fit));
            }
        });
        self.each("counts of all sizes", 1_000, || {
            for _ in 0..1_000 {
                black_box(map.counts().fold(0u128, |sum, (_, count)| sum.wrapping_add(count)));
            }
        });
        self.each("grant, into fragments", half.len(), || {
            half.iter_mut().for_each(|holding| grant(&mut map, len, fit, holding));
        });
        self.weigh("memory, after all churn", before);

        self.whole("rebuild", || map.rebuild(base));
        let mut loaded = AddressMap::new(base);
        self.whole("load, in random order", || {
            for (net, who) in &held {
                loaded.hold(*net, *who);
            }
        });
        let same = loaded.holdings().eq(map.holdings()) && loaded.counts().eq(map.counts());
        self.each("release all, random", live, || {
            for (net, who) in &held {
                map.release(*net, who);
            }
        });
        self.right = same && map.largest_free() == Some(base.prefix_len());
    }

    fn scattered(&mut self, live: usize) {
        let base = (0x2001_0db8_u128 << 96, 32);
        let net = |bits: u128, length| IpNet::new(std::net::Ipv6Addr::from_bits(bits).into(), length).ok();
        let mut state = 0x2545_f491_4f6c_dd1d;
        let nets: Vec<IpNet> = (0..live)
            .filter_map(|_| net(base.0 | (u128::from(random(&mut state) >> 32) << 64), 64))
            .collect();
        let Some(base) = net(base.0, base.1) else { return };
        let before = resident();
        let mut map = AddressMap::new(base);
        let mut reserved = Vec::with_capacity(nets.len());
        self.each("reserve, random", live, || {
            let fits = nets.iter().enumerate();
            reserved.extend(fits.filter(|(n, net)| map.reserve_exact(**net, Who::subnet(*n)).is_ok()));
        });
        self.weigh("memory", before);
        self.each("release, random", live, || {
            for (n, net) in &reserved {
                map.release(**net, &Who::subnet(*n));
            }
        });
        self.right = map.largest_free() == Some(base.prefix_len());
    }

    fn each(&mut self, what: &str, times: usize, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        let nanoseconds = start.elapsed().as_nanos() as f64 / times.max(1) as f64;
        self.nanoseconds.push((what.to_owned(), nanoseconds));
    }

    fn whole(&mut self, what: &str, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.seconds.push((what.to_owned(), start.elapsed().as_secs_f64()));
    }

    fn weigh(&mut self, what: &str, before: f64) {
        self.megabytes.push((what.to_owned(), (resident() - before).max(0.0)));
    }
}

/// As `act` does it: where it fits, then the range itself, checked once more.
fn grant(map: &mut AddressMap<Who>, len: u8, fit: Fit, holding: &mut (IpNet, Who)) {
    let Some(net) = map.fit(len, fit) else { return };
    if map.reserve_exact(net, holding.1).is_ok() {
        holding.0 = net;
    }
}

fn resident() -> f64 {
    process::megabytes(std::process::id(), "VmRSS")
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn shuffle<T>(list: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for last in (1..list.len()).rev() {
        list.swap(last, (random(&mut state) % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_ends_right_and_fills_its_rows() {
        let names = CASES.iter().map(|(name, ..)| *name).chain([SCATTERED]);
        let all: Vec<Figures> = names.map(|name| one(name, 2_000).unwrap()).collect();
        assert!(all.iter().all(|figures| figures.right), "{all:?}");
        let rows = rows(&all);
        assert!(rows.iter().take(3).all(|row| row.median > 0.0), "{rows:?}");
        assert!(one("IPv5", 1).is_err());
    }
}
