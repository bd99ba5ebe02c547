//! Section 12, row "map": a million live blocks. Prints what a grant, a release, all counts and a rebuild cost, and
//! what the map weighs.
//!
//! `cargo run --release -p usher-subnets --example map_bench`

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use ipnet::IpNet;
use usher_subnets::plan::map::{AddressMap, Fit};

const LIVE: usize = 1_000_000;

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
    ("ipv4-linear", "10.0.0.0/8", 28, Fit::First),
    ("ipv4-buddy", "10.0.0.0/8", 28, Fit::Best),
    ("ipv6-linear", "2001:db8::/32", 64, Fit::First),
    ("ipv6-buddy", "2001:db8::/32", 64, Fit::Best),
];

/// Each case runs in a process of its own: memory that one has freed would hide what the next one takes.
fn main() {
    let Some(wanted) = std::env::args().nth(1) else {
        println!("{LIVE} live blocks; who = {} bytes", size_of::<Who>());
        let Ok(myself) = std::env::current_exe() else { return };
        for name in CASES.iter().map(|(name, ..)| *name).chain(["ipv6-scattered"]) {
            if let Err(error) = Command::new(&myself).arg(name).status() {
                println!("{name}: {error}");
            }
        }
        return;
    };
    for (name, base, len, fit) in CASES {
        if let (true, Ok(base)) = (name == wanted, base.parse()) {
            println!("{base} -> /{len}, {fit:?}");
            measure(base, len, fit);
        }
    }
    if wanted == "ipv6-scattered" {
        scattered();
    }
}

fn measure(base: IpNet, len: u8, fit: Fit) {
    let mut held: Vec<(IpNet, Who)> = (0..LIVE).map(|n| (base, Who::subnet(n))).collect();
    let before = resident_mb();
    let mut map = AddressMap::new(base);

    per_item("grant, filling", LIVE, || {
        held.iter_mut().for_each(|holding| grant(&mut map, len, fit, holding))
    });
    megabytes("memory, filled in order", before);

    shuffle(&mut held);
    per_item("release + grant, random", LIVE, || {
        for holding in &mut held {
            map.release(holding.0, &holding.1);
            grant(&mut map, len, fit, holding);
        }
    });
    per_item("hand over twice, random", LIVE, || {
        for (n, (net, who)) in held.iter().enumerate() {
            map.hold(*net, Who::grant(n));
            map.release(*net, who);
            map.hold(*net, *who);
            map.release(*net, &Who::grant(n));
        }
    });
    let (_, half) = held.split_at_mut(LIVE / 2);
    per_item("release half, random", half.len(), || {
        for (net, who) in half.iter() {
            map.release(*net, who);
        }
    });
    megabytes("memory, half full", before);
    let mut overlay = map.overlay();
    per_item("overlay of 512 grants", 512, || {
        for _ in 0..512 {
            black_box(overlay.take(len, fit));
        }
    });
    per_item("counts of all sizes", 1_000, || {
        for _ in 0..1_000 {
            black_box(map.counts().fold(0u128, |sum, (_, count)| sum.wrapping_add(count)));
        }
    });
    per_item("grant, into fragments", half.len(), || {
        half.iter_mut().for_each(|holding| grant(&mut map, len, fit, holding));
    });
    megabytes("memory, after all churn", before);

    seconds("rebuild", || map.rebuild(base));
    let mut loaded = AddressMap::new(base);
    seconds("load, in random order", || {
        for (net, who) in &held {
            loaded.hold(*net, *who);
        }
    });
    seconds("compare", || {
        let same = loaded.holdings().eq(map.holdings()) && loaded.counts().eq(map.counts());
        println!("  loaded is rebuilt           {same:>7}");
    });
    per_item("release all, random", LIVE, || {
        for (net, who) in &held {
            map.release(*net, who);
        }
    });
    println!(
        "  all free again              {:>7}",
        map.largest_free() == Some(base.prefix_len())
    );
}

/// The worst that exact requests can do: blocks without neighbours. No budget, but good to know.
fn scattered() {
    println!("2001:db8::/32, exact /64 at random");
    let Ok(base) = "2001:db8::/32".parse::<IpNet>() else {
        return;
    };
    let mut state = 0x2545_f491_4f6c_dd1d;
    let nets: Vec<Option<IpNet>> = (0..LIVE)
        .map(|_| {
            let bits = (0x2001_0db8_u128 << 96) | (u128::from(random(&mut state) >> 32) << 64);
            IpNet::new(std::net::Ipv6Addr::from_bits(bits).into(), 64).ok()
        })
        .collect();
    let before = resident_mb();
    let mut map = AddressMap::new(base);
    per_item("reserve, random", LIVE, || {
        for (n, net) in nets.iter().enumerate() {
            net.map(|net| map.reserve_exact(net, Who::subnet(n)));
        }
    });
    megabytes("memory", before);
    per_item("release, random", LIVE, || {
        for (n, net) in nets.iter().enumerate() {
            net.map(|net| map.release(net, &Who::subnet(n)));
        }
    });
}

/// As `act` does it: where it fits, then the range itself, checked once more.
fn grant(map: &mut AddressMap<Who>, len: u8, fit: Fit, holding: &mut (IpNet, Who)) {
    let Some(net) = map.fit(len, fit) else { return };
    if map.reserve_exact(net, holding.1).is_ok() {
        holding.0 = net;
    }
}

fn per_item(what: &str, times: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!(
        "  {what:<25} {:>9} ns",
        start.elapsed().as_nanos() / times.max(1) as u128
    );
}

fn seconds(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("  {what:<25} {:>9.3} s", start.elapsed().as_secs_f64());
}

fn megabytes(what: &str, before: usize) {
    println!("  {what:<25} {:>9} MB", resident_mb().saturating_sub(before));
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

/// Resident memory of this process (Linux), 0 where it is not known.
fn resident_mb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024 / 1_000_000
}
