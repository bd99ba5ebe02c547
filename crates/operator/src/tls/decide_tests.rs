use proptest::prelude::*;

use super::*;

/// The custody of certificates without certificates: spans, and who signed by index from the newest.
struct Model {
    lifetimes: Lifetimes,
    now: Timestamp,
    authorities: Vec<Span>,
    serving: Option<(Span, usize)>,
    published: Option<Timestamp>,
    /// Every bundle that was ever published, and until when API servers may still use it.
    bundles: Vec<(Vec<Span>, Option<Timestamp>)>,
}

impl Model {
    fn new(lifetimes: Lifetimes) -> Self {
        let now = "2026-11-05T12:00:00Z".parse().unwrap();
        Self {
            lifetimes,
            now,
            authorities: Vec::new(),
            serving: None,
            published: None,
            bundles: Vec::new(),
        }
    }

    fn span(&self, life: Duration) -> Span {
        let from = self
            .now
            .checked_sub(SignedDuration::try_from(BACKDATE).unwrap())
            .unwrap();
        Span {
            from,
            until: later(self.now, life),
        }
    }

    fn facts(&self) -> Facts {
        Facts {
            authority: self.authorities.first().copied(),
            serving: self.serving.map(|(span, signer)| Serving {
                span,
                names: true,
                signer: match self.authorities.get(signer) {
                    None => Signer::Nobody,
                    Some(_) if signer == 0 => Signer::Newest,
                    Some(older) => Signer::Older(*older),
                },
            }),
            published: self.published,
        }
    }

    /// One look: publish what is there, decide, act, and again until there is nothing to do.
    fn look(&mut self, can_publish: bool) -> Timestamp {
        for _ in 0..4 {
            if can_publish && self.published.is_none() {
                if let Some((_, until)) = self.bundles.last_mut() {
                    *until = Some(later(self.now, self.lifetimes.settle));
                }
                self.bundles.push((self.authorities.clone(), None));
                self.published = Some(self.now);
            }
            match decide(&self.facts(), &self.lifetimes, self.now) {
                Verdict::Keep { until } => return until,
                Verdict::Create => {
                    assert!(self.authorities.is_empty());
                    self.add_authority();
                    self.sign();
                }
                Verdict::RotateCa(_) => self.add_authority(),
                Verdict::RotateServing(_) => self.sign(),
            }
        }
        panic!("a look must come to rest");
    }

    fn add_authority(&mut self) {
        let new = self.span(self.lifetimes.authority);
        let kept: Vec<Span> = self
            .authorities
            .iter()
            .filter(|old| old.until >= self.now)
            .copied()
            .collect();
        self.serving = self.serving.map(|(span, signer)| (span, signer + 1));
        self.authorities = std::iter::once(new).chain(kept).collect();
        self.published = None;
    }

    fn sign(&mut self) {
        let mut span = self.span(self.lifetimes.serving);
        span.until = span.until.min(self.authorities[0].until);
        self.serving = Some((span, 0));
    }

    fn usable(&self) -> bool {
        self.serving.is_some_and(|(span, signer)| {
            span.covers(self.now) && self.authorities.get(signer).is_some_and(|a| a.covers(self.now))
        })
    }

    /// Every bundle an API server may still hold vouches for the certificate that is presented.
    fn everybody_trusts(&self) -> bool {
        let Some((_, signer)) = self.serving else { return false };
        self.bundles
            .iter()
            .filter(|(bundle, until)| !bundle.is_empty() && until.is_none_or(|until| self.now < until))
            .all(|(bundle, _)| bundle.contains(&self.authorities[signer]))
    }
}

fn lifetimes() -> impl Strategy<Value = Lifetimes> {
    (4u32..5_000, 1u32..20, 1u64..70).prop_map(|(serving_hours, times, settle_minutes)| Lifetimes {
        serving: serving_hours * DAY / 24,
        authority: serving_hours * times * DAY / 24,
        settle: Duration::from_secs(settle_minutes * 60),
    })
}

fn instant() -> impl Strategy<Value = Timestamp> {
    (0i64..4_000_000_000).prop_map(|second| Timestamp::from_second(second).unwrap())
}

fn span() -> impl Strategy<Value = Span> {
    (instant(), instant()).prop_map(|(from, until)| Span { from, until })
}

fn facts() -> impl Strategy<Value = Facts> {
    let signer = prop_oneof![
        Just(Signer::Newest),
        Just(Signer::Nobody),
        span().prop_map(Signer::Older)
    ];
    let serving = (span(), signer, any::<bool>()).prop_map(|(span, signer, names)| Serving { span, signer, names });
    (
        prop::option::of(span()),
        prop::option::of(serving),
        prop::option::of(instant()),
    )
        .prop_map(|(authority, serving, published)| Facts {
            authority,
            serving,
            published,
        })
}

proptest! {
    #[test]
    fn through_years_of_looks_the_certificate_counts_and_every_api_server_trusts_it(
        lifetimes in lifetimes(),
        // Of the slack there is (what a third of the serving certificate's life leaves after settling), up to a third
        // each: a change of authority takes one look to be seen, one to be published after a failure, one to settle.
        waits in prop::collection::vec((0u32..95, any::<u8>()), 1..120),
    ) {
        prop_assert_eq!(lifetimes.problem(), None);
        let slack = lifetimes.serving / 3 - lifetimes.settle;
        let mut model = Model::new(lifetimes);
        model.look(true);
        let mut looks_missed = 0;
        for (percent, luck) in waits {
            model.now = later(model.now, slack * percent / 300);
            prop_assert!(model.usable(), "expired between two looks");
            prop_assert!(model.everybody_trusts());
            // Publishing may fail now and then, though not for ever.
            let can_publish = luck >= 60 || looks_missed >= 1;
            looks_missed = if can_publish { 0 } else { looks_missed + 1 };
            let until = model.look(can_publish);
            prop_assert!(until > model.now, "a verdict that is over when it is given");
            prop_assert!(model.usable());
            prop_assert!(model.everybody_trusts());
            // 2/3 of a life apart: two that count at once, and one just dying.
            prop_assert!(model.authorities.len() <= 3, "{} authorities", model.authorities.len());
        }
    }

    #[test]
    fn every_set_of_facts_has_a_verdict_and_keep_means_that_it_can_be_served(facts in facts(), now in instant()) {
        let lifetimes = Lifetimes::default();
        match decide(&facts, &lifetimes, now) {
            Verdict::Keep { until } => {
                let serving = facts.serving.unwrap();
                prop_assert!(until >= now);
                prop_assert!(facts.authority.unwrap().covers(now) && serving.span.covers(now) && serving.names);
                prop_assert_ne!(serving.signer, Signer::Nobody);
            }
            Verdict::Create => prop_assert!(facts.authority.is_none()),
            Verdict::RotateCa(_) | Verdict::RotateServing(_) => prop_assert!(facts.authority.is_some()),
        }
    }

    #[test]
    fn between_now_and_until_the_verdict_stays(facts in facts(), now in instant(), part in 0i64..1_000) {
        let lifetimes = Lifetimes::default();
        let first = decide(&facts, &lifetimes, now);
        if let Verdict::Keep { until } = first {
            let between = now.as_second() + (until.as_second() - now.as_second()) * part / 1_000;
            let then = Timestamp::from_second(between).unwrap();
            prop_assert_eq!(decide(&facts, &lifetimes, then), first);
        }
    }
}

#[test]
fn the_defaults_are_ninety_days_and_two_years_replaced_at_two_thirds() {
    let mut model = Model::new(Lifetimes::default());
    let start = model.now;
    let day = |n: u32| later(start, n * DAY);
    assert_eq!(
        model.look(true).duration_since(start).as_hours() / 24,
        59,
        "60 days less a part of the backdating"
    );
    model.now = day(59);
    assert!(matches!(
        decide(&model.facts(), &model.lifetimes, model.now),
        Verdict::Keep { .. }
    ));
    model.now = day(60);
    assert_eq!(
        decide(&model.facts(), &model.lifetimes, model.now),
        Verdict::RotateServing(Why::Age)
    );
    model.now = day(486);
    model.sign();
    assert!(matches!(
        decide(&model.facts(), &model.lifetimes, model.now),
        Verdict::Keep { .. }
    ));
    model.now = day(487);
    assert_eq!(
        decide(&model.facts(), &model.lifetimes, model.now),
        Verdict::RotateCa(Why::Age)
    );
    model.look(true);
    assert_eq!(
        model.serving.unwrap().1,
        1,
        "the old authority's signature stands until the new one has settled"
    );
    model.now = later(model.now, Duration::from_secs(601));
    model.look(true);
    assert_eq!((model.serving.unwrap().1, model.authorities.len()), (0, 2));
}

#[test]
fn a_new_authority_that_is_not_published_does_not_sign() {
    let mut model = Model::new(Lifetimes::default());
    model.look(true);
    model.now = later(model.now, 487 * DAY);
    model.sign();
    model.look(false);
    model.now = later(model.now, 10 * DAY);
    model.look(false);
    assert_eq!(model.serving.unwrap().1, 1);
    model.look(true);
    assert_eq!(model.serving.unwrap().1, 1, "published only now: it has yet to settle");
    model.now = later(model.now, Duration::from_secs(600));
    model.look(true);
    assert_eq!(model.serving.unwrap().1, 0);
}

#[test]
fn lifetimes_that_cannot_work_say_why() {
    let day = Lifetimes {
        serving: DAY,
        ..Lifetimes::default()
    };
    assert_eq!(day.problem(), None);
    assert!(
        Lifetimes { settle: DAY / 3, ..day }
            .problem()
            .unwrap()
            .contains("settling time")
    );
    assert!(
        Lifetimes {
            serving: DAY / 8,
            ..day
        }
        .problem()
        .unwrap()
        .contains("at least 14400 s")
    );
    assert!(
        Lifetimes {
            authority: DAY / 2,
            ..day
        }
        .problem()
        .unwrap()
        .contains("not be longer")
    );
    assert!(
        Lifetimes {
            authority: 40_000 * DAY,
            ..day
        }
        .problem()
        .unwrap()
        .contains("hundred years")
    );
}
