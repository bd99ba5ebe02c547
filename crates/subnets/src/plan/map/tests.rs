//! Section 5.2's vectors, and the edges that random tests seldom reach. `tests/map_oracle.rs` does the rest.

use ipnet::IpNet;

use super::{AddressMap, Conflict, Fit, NotGrowth};

fn net(text: &str) -> IpNet {
    text.parse().expect("a CIDR")
}

fn map(base: &str, held: &[&str]) -> AddressMap<u32> {
    let mut map = AddressMap::new(net(base));
    for (who, cidr) in (0..).zip(held) {
        map.hold(net(cidr), who);
    }
    map.check().expect("a sound map");
    map
}

/// Grants as `act` does.
fn grant(map: &mut AddressMap<u32>, len: u8, fit: Fit, who: u32) -> Option<String> {
    let found = map.fit(len, fit)?;
    map.reserve_exact(found, who).expect("what fits is free");
    map.check().expect("a sound map");
    Some(found.to_string())
}

#[test]
fn r6_counts_of_the_vectors() {
    let sizes = |held: &[&str]| -> Vec<u128> {
        let map = map("10.0.0.0/16", held);
        (16..=28).map(|len| map.count(len)).collect()
    };
    let cases: &[(&[&str], &[u128])] = &[
        (&[], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]),
        (
            &["10.0.0.0/24"],
            &[0, 1, 3, 7, 15, 31, 63, 127, 255, 510, 1020, 2040, 4080],
        ),
        (
            &["10.0.7.0/24", "10.0.7.0/24"],
            &[0, 1, 3, 7, 15, 31, 63, 127, 255, 510, 1020, 2040, 4080],
        ),
        (
            &["10.0.7.0/24", "10.0.7.128/25"],
            &[0, 1, 3, 7, 15, 31, 63, 127, 255, 510, 1020, 2040, 4080],
        ),
        (
            &["10.0.7.128/25", "10.0.7.0/24"],
            &[0, 1, 3, 7, 15, 31, 63, 127, 255, 510, 1020, 2040, 4080],
        ),
    ];
    for (held, counts) in cases {
        assert_eq!(sizes(held), *counts, "{held:?}");
    }
}

#[test]
fn r6_counts_of_ipv6_are_exact() {
    let map = map("2001:db8::/32", &[]);
    assert_eq!(map.count(64), 4_294_967_296);
    assert_eq!(map.count(128), 1 << 96);
    assert_eq!(map.count(32), 1);
    assert_eq!(map.count(31), 0);
    assert_eq!(map.count(129), 0);
    assert_eq!(map.counts().last(), Some((128, 1 << 96)));
}

#[test]
fn r3_linear_takes_the_lowest_and_buddy_the_tightest() {
    let map = map("10.0.0.0/22", &["10.0.2.0/24"]);
    assert_eq!(map.first_fit(24), Some(net("10.0.0.0/24")));
    assert_eq!(map.best_fit(24), Some(net("10.0.3.0/24")));
    assert_eq!(map.best_fit(23), Some(net("10.0.0.0/23")));
    assert_eq!(map.largest_free(), Some(23));
}

#[test]
fn r3_a_pool_is_served_until_exhausted() {
    for fit in [Fit::First, Fit::Best] {
        let mut map = map("192.168.1.0/27", &[]);
        assert_eq!(grant(&mut map, 28, fit, 1).as_deref(), Some("192.168.1.0/28"));
        assert_eq!(grant(&mut map, 28, fit, 2).as_deref(), Some("192.168.1.16/28"));
        assert_eq!(grant(&mut map, 28, fit, 3), None);
        assert_eq!(map.largest_free(), None);
        assert_eq!(map.used_percent(), 100);
    }
}

#[test]
fn r3_a_whole_pool_may_be_granted() {
    let mut map = map("10.0.0.0/16", &[]);
    assert_eq!(grant(&mut map, 16, Fit::First, 1).as_deref(), Some("10.0.0.0/16"));
    assert_eq!(map.first_fit(32), None);
    assert_eq!(map.first_fit(8), None, "what is bigger than the pool never fits");
}

#[test]
fn r2_release_frees_only_what_no_other_holding_covers() {
    // (held in this order, released, free afterwards in addresses of the /24)
    let cases: &[(&[&str], &str, u128)] = &[
        (&["10.0.0.0/25"], "10.0.0.0/25", 256),
        (&["10.0.0.0/25", "10.0.0.0/26"], "10.0.0.0/25", 192),
        (&["10.0.0.0/25", "10.0.0.0/26"], "10.0.0.0/26", 128),
        (&["10.0.0.0/26", "10.0.0.0/25"], "10.0.0.0/25", 192),
        (
            &["10.0.0.64/27", "10.0.0.80/28", "10.0.0.200/32", "10.0.0.0/24"],
            "10.0.0.0/24",
            256 - 32 - 1,
        ),
        (&["10.0.0.0/24", "10.0.0.64/27", "10.0.0.80/28"], "10.0.0.64/27", 0),
        (&["0.0.0.0/0"], "0.0.0.0/0", 256),
        (&["10.0.0.0/8", "10.0.0.0/16"], "10.0.0.0/8", 0),
        (&["10.0.0.0/16", "10.0.0.0/8"], "10.0.0.0/16", 0),
        (&["10.0.0.0/16", "10.0.0.128/25"], "10.0.0.0/16", 128),
        (&["10.0.0.0/16", "10.0.9.0/24", "11.0.0.0/8"], "10.0.0.0/16", 256),
        (&["11.0.0.0/8", "2001:db8::/32", "::/0"], "::/0", 256),
    ];
    for (held, released, free) in cases {
        let mut map = map("10.0.0.0/24", held);
        let who = held.iter().position(|cidr| cidr == released).expect("it is held") as u32;
        assert!(!map.release(net(released), &99), "{held:?}: not its holder");
        assert!(map.release(net(released), &who));
        assert!(!map.release(net(released), &who), "{held:?}: once is enough");
        map.check()
            .unwrap_or_else(|damage| panic!("{held:?} - {released}: {damage}"));
        assert_eq!(map.free_addresses(), *free, "{held:?} - {released}");
        assert_eq!(map.held_addresses(), 256 - free, "{held:?} - {released}");
    }
}

#[test]
fn r2_a_prefix_is_free_when_its_last_holder_is_gone() {
    let mut map = map("10.0.0.0/24", &["10.0.0.0/25", "10.0.0.0/25", "10.0.0.0/25"]);
    assert!(!map.hold(net("10.0.0.0/25"), 1), "holding twice is holding once");
    assert_eq!(map.holding_count(), 3);
    for (who, left) in [(1, 2), (0, 1), (2, 0)] {
        assert!(!map.is_free(net("10.0.0.0/25")));
        assert!(map.holds(net("10.0.0.0/25"), &who));
        assert!(map.release(net("10.0.0.0/25"), &who));
        assert!(!map.holds(net("10.0.0.0/25"), &who));
        assert_eq!(map.holding_count(), left);
    }
    assert!(map.is_free(net("10.0.0.0/24")));
}

#[test]
fn r2_a_holding_around_an_empty_base_knows_what_it_covers_elsewhere() {
    for held in [["10.0.0.0/26", "10.0.0.0/22"], ["10.0.0.0/22", "10.0.0.0/26"]] {
        let mut map = map("10.0.1.0/24", &held);
        map.grow(net("10.0.0.0/22")).expect("a growth");
        let wide = held.iter().position(|cidr| cidr.ends_with("/22")).expect("one is") as u32;
        assert!(map.release(net("10.0.0.0/22"), &wide));
        map.check().expect("a sound map");
        assert_eq!(map.held_addresses(), 64);
    }
}

#[test]
fn r4_a_conflict_names_the_holder_by_longest_match() {
    let held = [
        "10.0.0.0/20",
        "10.0.4.0/22",
        "10.0.32.0/24",
        "10.0.33.0/25",
        "10.0.33.0/24",
        "172.16.0.0/12",
    ];
    let mut map = map("10.0.0.0/16", &held);
    let before: Vec<_> = map.counts().collect();
    let cases = [
        ("10.0.0.0/24", "10.0.0.0/20", 0),
        ("10.0.5.0/24", "10.0.4.0/22", 1),
        ("10.0.4.0/22", "10.0.4.0/22", 1),
        ("10.0.0.0/19", "10.0.0.0/20", 0),
        ("10.0.33.0/26", "10.0.33.0/25", 3),
        ("10.0.33.128/26", "10.0.33.0/24", 4),
        ("10.0.32.0/23", "10.0.32.0/24", 2),
        ("10.0.32.0/19", "10.0.32.0/24", 2),
    ];
    for (wanted, by, holder) in cases {
        let conflict = Conflict::Held { net: net(by), holder };
        assert_eq!(map.overlay().reserve(net(wanted)), Err(conflict.clone()), "{wanted}");
        assert_eq!(map.reserve_exact(net(wanted), 9), Err(conflict), "{wanted}");
    }
    for wanted in ["10.0.0.0/15", "172.16.0.0/12", "2001:db8::/32", "::/0"] {
        let outside = Conflict::Outside {
            base: net("10.0.0.0/16"),
        };
        assert_eq!(map.overlay().reserve(net(wanted)), Err(outside.clone()), "{wanted}");
        assert_eq!(map.reserve_exact(net(wanted), 9), Err(outside), "{wanted}");
        assert!(!map.is_free(net(wanted)));
    }
    assert_eq!(
        map.counts().collect::<Vec<_>>(),
        before,
        "a refused range changes nothing"
    );
    assert_eq!(map.reserve_exact(net("10.0.64.0/20"), 9), Ok(()));
    assert_eq!(
        map.reserve_exact(net("10.0.65.0/24"), 9),
        Err(Conflict::Held {
            net: net("10.0.64.0/20"),
            holder: 9
        })
    );
}

#[test]
fn an_overlay_names_what_it_took_itself() {
    let map = map("10.0.0.0/24", &["10.0.0.64/26"]);
    let mut overlay = map.overlay();
    assert_eq!(overlay.take(27, Fit::First), Some(net("10.0.0.0/27")));
    assert_eq!(overlay.take(27, Fit::Best), Some(net("10.0.0.32/27")));
    let planned = |cidr| Err(Conflict::Planned { net: net(cidr) });
    assert_eq!(overlay.reserve(net("10.0.0.8/29")), planned("10.0.0.0/27"));
    assert_eq!(overlay.reserve(net("10.0.0.32/27")), planned("10.0.0.32/27"));
    assert_eq!(overlay.reserve(net("10.0.0.0/24")), planned("10.0.0.0/27"));
    assert_eq!(
        overlay.reserve(net("10.0.0.64/27")),
        Err(Conflict::Held {
            net: net("10.0.0.64/26"),
            holder: 0
        })
    );
    assert_eq!(
        overlay.reserve(net("10.0.0.0/23")),
        Err(Conflict::Outside {
            base: net("10.0.0.0/24")
        })
    );
    assert_eq!(
        (overlay.count(25), overlay.count(32), overlay.largest_free()),
        (1, 128, Some(25))
    );
    assert!(overlay.fits(25) && !overlay.fits(24) && overlay.fits(32) && !overlay.fits(33));
    assert!(!overlay.is_free(net("10.0.0.0/32")) && overlay.is_free(net("10.0.0.128/25")));
    assert_eq!(map.count(32), 192, "the map is as it was");
}

#[test]
fn overlapping_lists_around_and_inside() {
    let map = map(
        "10.0.0.0/16",
        &[
            "10.0.0.0/8",
            "10.0.0.0/20",
            "10.0.1.0/24",
            "10.0.1.0/25",
            "10.0.1.9/32",
            "10.0.2.0/24",
        ],
    );
    let overlapping = |cidr| map.overlapping(net(cidr)).map(|(_, who)| *who).collect::<Vec<_>>();
    assert_eq!(overlapping("10.0.1.0/24"), [0, 1, 2, 3, 4]);
    assert_eq!(overlapping("10.0.1.0/32"), [0, 1, 2, 3]);
    assert_eq!(overlapping("10.0.2.0/23"), [0, 1, 5]);
    assert_eq!(overlapping("0.0.0.0/0"), [0, 1, 2, 5, 3, 4]);
    assert_eq!(overlapping("11.0.0.0/8"), [] as [u32; 0]);
    assert_eq!(overlapping("::/0"), [] as [u32; 0]);
    assert_eq!(
        map.holdings().map(|(_, who)| *who).collect::<Vec<_>>(),
        [0, 1, 2, 5, 3, 4]
    );
}

#[test]
fn host_bits_are_cleared() {
    let mut map = map("10.3.7.0/16", &["10.3.9.77/24"]);
    assert_eq!(map.base(), net("10.3.0.0/16"));
    assert!(map.holds(net("10.3.9.0/24"), &0));
    assert!(map.release(net("10.3.9.5/24"), &0));
    assert!(map.is_free(net("10.3.0.0/16")));
}

#[test]
fn r40_growing_adds_what_is_around() {
    let mut map = map(
        "10.0.1.0/24",
        &["10.0.1.0/25", "10.0.0.0/26", "10.0.3.0/24", "10.0.128.0/17"],
    );
    for (base, free) in [
        ("10.0.0.0/23", 128 + 192),
        ("10.0.0.0/22", 128 + 192 + 256),
        ("10.0.0.0/16", 32768 - 448),
    ] {
        map.grow(net(base)).expect("a growth");
        map.check().expect("a sound map");
        assert_eq!((map.base(), map.free_addresses()), (net(base), free));
    }
    let refused = Err(NotGrowth {
        old: net("10.0.0.0/16"),
        new: net("10.0.0.0/17"),
    });
    assert_eq!(map.grow(net("10.0.0.0/17")), refused);
    assert_eq!(
        map.grow(net("10.0.0.0/16")),
        Ok(()),
        "its own range is a growth by nothing"
    );
    map.rebuild(net("10.0.0.0/23"));
    map.check().expect("a sound map");
    assert_eq!(map.free_addresses(), 128 + 192);
    assert_eq!(map.holding_count(), 4, "what is outside now is still held");
    map.rebuild(net("2001:db8::/64"));
    assert_eq!(map.largest_free(), Some(64));
    map.rebuild(net("10.0.3.0/24"));
    assert_eq!(map.largest_free(), None);
}

#[test]
fn an_empty_pool_that_grows_is_one_block() {
    let mut map = map("10.0.1.0/24", &[]);
    map.grow(net("10.0.0.0/8")).expect("a growth");
    assert_eq!((map.largest_free(), map.count(8)), (Some(8), 1));
    map.check().expect("a sound map");
}

#[test]
fn a_holding_around_the_base_holds_everything() {
    let mut map = map("10.0.0.0/16", &["10.0.0.0/24", "0.0.0.0/0"]);
    assert_eq!(
        (map.largest_free(), map.held_addresses(), map.used_percent()),
        (None, 65536, 100)
    );
    map.grow(net("10.0.0.0/8")).expect("a growth");
    assert_eq!(map.largest_free(), None);
    assert!(map.release(net("0.0.0.0/0"), &1));
    map.check().expect("a sound map");
    assert_eq!(map.held_addresses(), 256);
}

#[test]
fn the_whole_address_space_does_not_overflow() {
    let mut v6 = map("::/0", &[]);
    assert_eq!((v6.count(0), v6.count(127), v6.count(128)), (1, 1 << 127, u128::MAX));
    assert_eq!(v6.counts().last(), Some((128, u128::MAX)));
    assert_eq!(
        (v6.free_addresses(), v6.held_addresses(), v6.used_percent()),
        (u128::MAX, 0, 0)
    );
    v6.hold(net("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), 1);
    v6.check().expect("a sound map");
    assert_eq!(
        (v6.free_addresses(), v6.held_addresses(), v6.used_percent()),
        (u128::MAX, 1, 0)
    );
    assert_eq!((v6.count(128), v6.count(1), v6.largest_free()), (u128::MAX, 1, Some(1)));
    assert_eq!(
        v6.best_fit(128),
        Some(net("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/128"))
    );
    v6.hold(net("::/1"), 2);
    assert_eq!((v6.held_addresses(), v6.used_percent()), ((1 << 127) + 1, 50));
    v6.hold(net("::/0"), 3);
    assert_eq!(
        (v6.free_addresses(), v6.held_addresses(), v6.used_percent()),
        (0, u128::MAX, 100)
    );
    v6.release(net("::/0"), &3);
    v6.release(net("::/1"), &2);
    v6.release(net("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), &1);
    assert_eq!(v6.overlay().take(0, Fit::Best), Some(net("::/0")));

    let mut v4 = map("0.0.0.0/0", &[]);
    assert_eq!((v4.count(0), v4.count(32), v4.count(33)), (1, 1 << 32, 0));
    v4.hold(net("255.255.255.255/32"), 1);
    v4.check().expect("a sound map");
    assert_eq!(v4.best_fit(32), Some(net("255.255.255.254/32")));
    assert_eq!(
        (v4.first_fit(33), v4.first_fit(255), v4.overlay().take(33, Fit::First)),
        (None, None, None)
    );
}

#[test]
fn a_pool_of_one_address() {
    for base in ["10.0.0.7/32", "2001:db8::7/128"] {
        let mut map = map(base, &[]);
        let len = net(base).prefix_len();
        assert_eq!((map.count(len), map.free_addresses(), map.used_percent()), (1, 1, 0));
        assert_eq!(grant(&mut map, len, Fit::Best, 1).as_deref(), Some(base));
        assert_eq!((map.count(len), map.used_percent()), (0, 100));
        assert!(map.release(net(base), &1));
        assert!(map.is_free(net(base)));
    }
}

#[test]
fn used_percent_rounds_down() {
    let mut map = map("2001:db8::/32", &["2001:db8::/34", "2001:db8:4000::/35"]);
    assert_eq!(map.used_percent(), 37);
    map.hold(net("2001:db8:8000::/33"), 7);
    map.hold(net("2001:db8:6000::/36"), 7);
    assert_eq!(map.used_percent(), 93);
    let nearly = map_of_all_but_one();
    assert_eq!((nearly.free_addresses(), nearly.used_percent()), (1, 99));
}

fn map_of_all_but_one() -> AddressMap<u32> {
    let mut map = map("::/0", &[]);
    for len in 1..=128u8 {
        let taken = map.first_fit(len).expect("the rest is free");
        map.hold(taken, u32::from(len));
    }
    map
}

#[test]
fn check_finds_damage() {
    use super::Damage;
    use super::block::Block;
    use super::free::FreeSpace;
    let sound = map("10.0.0.0/24", &["10.0.0.0/26"]);
    let damaged = |by: fn(&mut AddressMap<u32>)| {
        let mut map = sound.clone();
        by(&mut map);
        map.check().expect_err("it is damaged")
    };
    assert_eq!(
        damaged(|m| m.free.remove(Block::of(net("10.0.0.128/25")))),
        Damage::Lost { lost: 128 }
    );
    assert_eq!(
        damaged(|m| m.free.insert(Block::of(net("10.0.0.0/27")))),
        Damage::FreeAndHeld {
            net: net("10.0.0.0/26")
        }
    );
    assert_eq!(
        damaged(|m| m.free.insert(Block::of(net("10.0.0.192/26")))),
        Damage::FreeTwice {
            net: net("10.0.0.192/26")
        }
    );
    assert_eq!(
        damaged(|m| m.free.insert(Block::of(net("10.0.0.0/25")))),
        Damage::NotMaximal {
            net: net("10.0.0.0/25")
        }
    );
    assert_eq!(
        damaged(|m| m.free.insert(Block::of(net("10.0.1.0/24")))),
        Damage::Outside {
            net: net("10.0.1.0/24")
        }
    );
}

#[test]
fn r5_one_grant_or_release_touches_no_more_free_blocks_than_there_are_lengths() {
    let mut map = AddressMap::new(net("10.0.0.0/8"));
    let blocks = |map: &AddressMap<u32>| map.free.set().iter().count();
    for who in 0..3_000 {
        let before = blocks(&map);
        let len = if who % 3 == 0 { 32 } else { 24 };
        let found = map
            .fit(len, if who % 2 == 0 { Fit::First } else { Fit::Best })
            .expect("room");
        map.reserve_exact(found, who).expect("it is free");
        assert!(blocks(&map).abs_diff(before) <= 32, "R5: a grant of a /{len}");
        if who % 5 == 0 {
            let before = blocks(&map);
            map.release(found, &who);
            assert!(blocks(&map).abs_diff(before) <= 32, "R5: its release");
        }
    }
}
