//! The decider of a fail-over, step by step: what stands in its way, and terms that were drawn by hand.

use cluster::catalogue::HIGHEST_TERM;
use cluster::failover::stands_in_the_way;
use cluster::{
    Action, Answer, Before, Catalogue, Command, End, Failover, Holder, Kind, Lost, Member, NodeId,
    Obstacle, Phase, Policies, Refused, Request, Terms, Testimony,
};
use std::collections::BTreeSet;

/// The first leads; each commit is held by one replica.
fn catalogue(kinds: &[Kind]) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for (node, kind) in (1..).zip(kinds) {
        let member = Member {
            name: format!("n{node}"),
            address: format!("n{node}:1"),
            kind: *kind,
            level: 0,
        };
        let command = match node {
            1 => Command::Found {
                node,
                member,
                term: 1,
            },
            _ => Command::Join { node, member },
        };
        catalogue.apply(&command).expect("taken");
    }
    let (term, by, change) = (1, 1, catalogue.change());
    let covered = Command::Covered { term, by, change };
    catalogue.apply(&covered).expect("taken");
    catalogue
}

fn set(nodes: &[NodeId]) -> BTreeSet<NodeId> {
    nodes.iter().copied().collect()
}

#[test]
fn what_stands_in_the_way_counts_only_members_that_are_reached() {
    use Kind::{Server, Witness};
    let three = catalogue(&[Server, Server, Server]);
    let all = set(&[1, 2, 3]);
    assert_eq!(stands_in_the_way(&three, &all, &all), None);
    let lost = stands_in_the_way(&three, &all, &set(&[1, 3]));
    assert_eq!(lost, Some(Obstacle::Votes { needed: 2, have: 1 }));
    let with_witness = catalogue(&[Server, Server, Witness]);
    assert_eq!(stands_in_the_way(&with_witness, &all, &all), None);
    // One vote of three copies stands elsewhere, and the fourth copy is needed all the same.
    let four = catalogue(&[Server, Server, Server, Server]);
    let lost = stands_in_the_way(&four, &all, &all);
    assert_eq!(lost, Some(Obstacle::Answers { needed: 3, have: 2 }));
}

#[test]
fn a_term_that_was_drawn_by_hand_is_overtaken() {
    use Kind::Server;
    let hand = 1 << 40;
    let mut catalogue = catalogue(&[Server, Server, Server]);
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    let long = 10_000_000_000;
    let step = |failover: &mut Failover, catalogue: &mut Catalogue| {
        let actions = failover.tick(catalogue, long);
        for action in &actions {
            if let Action::Propose(command) = action {
                catalogue.apply(command).expect("in time");
            }
        }
        actions
    };
    failover.tick(&catalogue, 0);
    step(&mut failover, &mut catalogue);
    assert_eq!(
        catalogue.phase(),
        Some(Phase::Choosing { term: 2, before: 1 })
    );
    let asked = step(&mut failover, &mut catalogue);
    assert_eq!(asked.len(), 3, "{asked:?}");
    for node in 1..=3 {
        failover.answered(2, node, Answer::Later(hand));
    }
    step(&mut failover, &mut catalogue);
    let term = hand + 1;
    assert_eq!(catalogue.phase(), Some(Phase::Choosing { term, before: 1 }));
    // The old primary and one more would be enough; the third one was promoted by hand.
    for (node, began) in [(1, 1), (2, 1), (3, hand)] {
        step(&mut failover, &mut catalogue);
        assert_eq!(catalogue.phase(), Some(Phase::Choosing { term, before: 1 }));
        let end = End {
            term: began,
            position: 7,
        };
        failover.answered(term, node, Answer::Promised(end.into()));
    }
    step(&mut failover, &mut catalogue);
    assert_eq!(catalogue.phase(), Some(Phase::Leading { node: 3, term }));
}

/// A copy that leads was asked once more, under the term that it leads. No person has promoted it: the next term needs not be above.
#[test]
fn a_late_question_at_the_new_primary_makes_no_term_by_hand() {
    use Kind::Server;
    let mut catalogue = catalogue(&[Server, Server, Server]);
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    let mut now = 0;
    let mut steps = |failover: &mut Failover, catalogue: &mut Catalogue| {
        now += 10_000_000_000;
        let mut proposed = Vec::new();
        for action in failover.tick(catalogue, now) {
            if let Action::Propose(command) = action {
                catalogue.apply(&command).expect("in time");
                proposed.push(command);
            }
        }
        proposed
    };
    steps(&mut failover, &mut catalogue);
    steps(&mut failover, &mut catalogue);
    let term = catalogue.phase().expect("one is chosen").term();
    let end = End {
        term: 1,
        position: 7,
    };
    for node in [2, 3] {
        failover.answered(term, node, Answer::Promised(end.into()));
    }
    steps(&mut failover, &mut catalogue);
    let Some(Phase::Leading { node, .. }) = catalogue.phase() else {
        panic!("{:?}", catalogue.phase());
    };
    failover.answered(term, node, Answer::Later(term));
    let begun = (0..10).find_map(|_| {
        let proposed = steps(&mut failover, &mut catalogue);
        proposed.into_iter().find_map(|c| match c {
            Command::Begin { above, .. } => Some(above),
            _ => None,
        })
    });
    assert_eq!(begun, Some(0));
}

/// After an election a primary that is there is not given up before it can have asked, though no lease is left.
#[test]
fn a_new_consensus_leader_gives_the_primary_its_chance() {
    use Kind::Server;
    let catalogue = catalogue(&[Server, Server, Server]);
    let ms = 1_000_000;
    let begins = |replaced: Option<NodeId>, granted: u64| {
        let before = Before { granted, replaced };
        let mut failover = Failover::elected(Terms::default(), 5000 * ms, before);
        let at = (5000..).step_by(50).find(|at| {
            let done = failover.tick(&catalogue, at * ms);
            done.iter()
                .any(|a| matches!(a, Action::Propose(Command::Begin { .. })))
        });
        at.expect("it begins at last") - 5000
    };
    // Long silent, and missed by a majority.
    assert_eq!(begins(Some(1), 2000 * ms), 400);
    // A lease may be left.
    assert_eq!(begins(Some(1), 4000 * ms), 650);
    assert_eq!(begins(Some(1), 5000 * ms), 1650);
    // Another one led the consensus: nothing is known of the primary.
    assert_eq!(begins(Some(2), 2000 * ms), 1650);
    assert_eq!(begins(None, 2000 * ms), 1650);
}

/// As a build before `failover.lease` asks, which takes each lease for one of the usual length.
#[test]
fn a_holder_that_takes_its_lease_for_longer_than_is_agreed_gets_none() {
    use Kind::Server;
    let usual = catalogue(&[Server, Server]);
    let mut short = usual.clone();
    let policies = Policies {
        lease: Some(600),
        ..Policies::default()
    };
    short.apply(&set_to(policies)).expect("taken");
    let gets = |catalogue: &Catalogue, length: Option<u64>| {
        // It was elected before it knew what is agreed on.
        let mut failover = Failover::elected(Terms::default(), 0, Before::default());
        let request = Holder::new(Terms::default(), 1, 1, 3).request(0);
        failover.requested(catalogue, Request { length, ..request }, 0)
    };
    for (length, by_usual, by_short) in [
        (None, true, false),
        (Some(1500), true, false),
        (Some(600), true, true),
        (Some(601), true, false),
        (Some(1501), false, false),
    ] {
        assert_eq!(gets(&usual, length), by_usual, "{length:?}");
        assert_eq!(gets(&short, length), by_short, "{length:?}");
    }
}

fn set_to(policies: Policies) -> Command {
    let before = None;
    Command::Set { policies, before }
}

/// The primary is gone for long. What is done about it.
fn done_long_after(catalogue: &Catalogue) -> Vec<Action> {
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    failover.tick(catalogue, 0);
    failover.tick(catalogue, 100_000_000_000)
}

/// Nothing is begun by itself. A hand-over goes, and what was begun ends.
#[test]
fn in_maintenance_nothing_begins_by_itself() {
    use Kind::Server;
    let mut three = catalogue(&[Server, Server, Server]);
    let policies = |maintenance| Policies {
        maintenance,
        ..Policies::default()
    };
    three.apply(&set_to(policies(true))).expect("taken");
    assert_eq!(done_long_after(&three), vec![]);
    let all = set(&[1, 2, 3]);
    let stands = stands_in_the_way(&three, &all, &all);
    assert_eq!(stands, Some(Obstacle::Maintenance));
    let handed = Command::HandOver { term: 1, to: 2 };
    three.apply(&handed).expect("taken");
    assert_eq!(done_long_after(&three), vec![]);
    // The primary gave it up on the way, and asks for a choice.
    let (after, above) = (2, 0);
    let mut given_up = three.clone();
    let begin = Command::Begin { after, above };
    given_up.apply(&begin).expect("taken");
    assert_eq!(
        done_long_after(&given_up),
        vec![Action::Propose(Command::Begin { after: 3, above })]
    );
    three.apply(&set_to(policies(false))).expect("taken");
    assert_eq!(done_long_after(&three), vec![Action::Propose(begin)]);
}

/// The one that chooses may not know the new number yet, and the primary that goes may know it already.
#[test]
fn how_many_replicas_hold_a_commit_is_not_changed_while_a_leader_is_chosen() {
    use Kind::Server;
    let mut three = catalogue(&[Server, Server, Server]);
    let replicas = |n| Policies {
        synchronous_replicas: Some(n),
        ..Policies::default()
    };
    three.apply(&set_to(replicas(2))).expect("taken");
    assert_eq!(
        (three.wanted(), three.promised()),
        (2, 1),
        "the primary has not reported"
    );
    let (term, by, change) = (1, 2, three.change());
    let covered = Command::Covered { term, by, change };
    three.apply(&covered).expect("taken");
    assert_eq!(three.promised(), 2);
    let mut chosen = three.clone();
    let begin = Command::Begin { after: 1, above: 0 };
    chosen.apply(&begin).expect("taken");
    assert_eq!(chosen.apply(&set_to(replicas(1))), Err(Refused::Late));
    assert_eq!(chosen.promised(), 2);
    let another = Policies {
        maintenance: true,
        ..replicas(2)
    };
    chosen.apply(&set_to(another)).expect("it counts nothing");
    // No leader is being chosen: it falls before the primary, which applies this, waits for fewer. Reports that are under way come too late.
    three.apply(&set_to(replicas(1))).expect("taken");
    assert_eq!((three.wanted(), three.promised()), (1, 1));
    assert_eq!(three.apply(&covered), Err(Refused::Late));
}

/// Two that change settings at the same time: the second one looks again.
#[test]
fn a_change_of_settings_that_are_others_by_now_comes_too_late() {
    use Kind::Server;
    let mut two = catalogue(&[Server, Server]);
    let degrade = Command::Degrade { term: 1, wanted: 0 };
    two.apply(&degrade).expect("taken");
    let first = Policies {
        maintenance: true,
        ..Policies::default()
    };
    let change = |policies: &Policies, before: &Policies| Command::Set {
        policies: policies.clone(),
        before: Some(before.clone()),
    };
    let none = Policies::default();
    two.apply(&change(&first, &none)).expect("taken");
    assert!(two.degraded() && two.wanted() == 0, "it is another matter");
    let second = Policies {
        max_loss: Some(3000),
        ..none.clone()
    };
    assert_eq!(two.apply(&change(&second, &none)), Err(Refused::Late));
    let both = Policies {
        max_loss: Some(3000),
        ..first.clone()
    };
    two.apply(&change(&both, &first)).expect("taken");
    let lease = Policies {
        lease: Some(600),
        ..both.clone()
    };
    let late = two.apply(&change(&lease, &both));
    assert_eq!(late, Err(Refused::Late), "there is a second member");
}

/// Nothing is promised: the first leads, and commits wait for no replica.
fn unpromised(max_loss: Option<u64>) -> Catalogue {
    use Kind::Server;
    let mut catalogue = catalogue(&[Server, Server, Server]);
    let policies = Policies {
        synchronous_replicas: Some(0),
        max_loss,
        ..Policies::default()
    };
    catalogue.apply(&set_to(policies)).expect("taken");
    assert_eq!(catalogue.promised(), 0);
    catalogue
}

fn said(term: u64, position: u64, age: Option<u64>) -> Answer {
    let end = End { term, position };
    let failed = 0;
    Answer::Promised(Testimony { end, age, failed })
}

/// The same of a copy that could not begin the term that it was named for.
fn unable(term: u64, position: u64) -> Answer {
    failed(term, position, 2)
}

/// So many tries have failed.
fn failed(term: u64, position: u64, failed: u32) -> Answer {
    let (end, age) = (End { term, position }, None);
    Answer::Promised(Testimony { end, age, failed })
}

/// The primary is gone, and these copies have answered. The decider, and the time.
fn asked(catalogue: &mut Catalogue, answers: &[(NodeId, Answer)]) -> (Failover, u64) {
    let long = 10_000_000_000;
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    failover.tick(catalogue, 0);
    for action in failover.tick(catalogue, long) {
        if let Action::Propose(command) = action {
            catalogue.apply(&command).expect("in time");
        }
    }
    let begun = Phase::Choosing { term: 2, before: 1 };
    assert_eq!(catalogue.phase(), Some(begun));
    let copies = catalogue.members().values().filter(|m| m.has_copy());
    let all = copies.count();
    assert_eq!(failover.tick(catalogue, long).len(), all, "all are asked");
    for (node, answer) in answers {
        failover.answered(2, *node, *answer);
    }
    (failover, long)
}

/// What is named after so many milliseconds; nothing: the others are asked again.
fn named_after(catalogue: &Catalogue, ms: u64, answers: &[(NodeId, Answer)]) -> Option<NodeId> {
    let mut catalogue = catalogue.clone();
    let (mut failover, now) = asked(&mut catalogue, answers);
    match &failover.tick(&catalogue, now + ms * 1_000_000)[..] {
        [
            Action::Propose(Command::Name {
                node, lost: None, ..
            }),
        ] => Some(*node),
        actions => {
            let asks = |a: &Action| matches!(a, Action::Ask { .. });
            assert!(
                !actions.is_empty() && actions.iter().all(asks),
                "{actions:?}"
            );
            None
        }
    }
}

/// Sites may lead from now on, or may not any more.
fn sites_may(catalogue: &mut Catalogue, sites_may_lead: bool) -> Result<(), Refused> {
    let policies = Policies {
        sites_may_lead,
        ..catalogue.policies().clone()
    };
    catalogue.apply(&set_to(policies))
}

fn covered(catalogue: &mut Catalogue, by: usize) {
    let (term, change) = (
        catalogue.phase().expect("founded").term(),
        catalogue.change(),
    );
    let covered = Command::Covered { term, by, change };
    catalogue.apply(&covered).expect("taken");
}

/// No commit waits for a site, no answer of it is needed, and it is not named though it stands furthest: what it has beyond the servers was not acknowledged.
#[test]
fn a_site_is_asked_and_is_not_named_unless_it_may_lead() {
    use Kind::{Server, Site};
    let mut four = catalogue(&[Server, Server, Server, Site]);
    assert_eq!((four.wanted(), four.promised(), four.replicas()), (1, 1, 2));
    assert_eq!(four.voters(&set(&[1])), set(&[1, 2, 3]));
    let further = [
        (2, said(1, 7, None)),
        (3, said(1, 6, None)),
        (4, said(1, 9, None)),
    ];
    assert_eq!(named_after(&four, 0, &further), Some(2));
    assert_eq!(
        named_after(&four, 0, &further[1..]),
        None,
        "it does not count"
    );
    // Its answer would change nothing, so it is not waited for.
    let unable = [(2, unable(1, 7)), (3, unable(1, 7)), (1, unable(1, 7))];
    assert_eq!(named_after(&four, 0, &unable), Some(1));

    sites_may(&mut four, true).expect("taken");
    assert_eq!((four.promised(), four.replicas()), (1, 3));
    assert_eq!(named_after(&four, 0, &further), Some(4));
    assert_eq!(named_after(&four, 0, &further[1..]), None, "each is needed");
    // A server comes first where it stands as far.
    let equal = [
        (4, said(1, 7, None)),
        (3, said(1, 7, None)),
        (2, said(1, 6, None)),
    ];
    assert_eq!(named_after(&four, 0, &equal), Some(3));
    // The site may have been the one that held a commit.
    sites_may(&mut four, false).expect("taken");
    assert_eq!((four.wanted(), four.promised()), (1, 0));
}

/// Of a server, a witness and a site the site takes over where it may lead. It cannot be told so afterwards, but where nothing was promised.
#[test]
fn a_site_and_a_witness_are_enough_where_the_site_may_lead() {
    use Kind::{Server, Site, Witness};
    let mut three = Catalogue::default();
    for (node, kind) in [(1, Server), (2, Witness), (3, Site)] {
        let (name, address) = (format!("n{node}"), format!("n{node}:1"));
        let member = Member {
            name,
            address,
            kind,
            level: 0,
        };
        let command = match node {
            1 => Command::Found {
                node,
                member,
                term: 1,
            },
            _ => Command::Join { node, member },
        };
        three.apply(&command).expect("taken");
    }
    assert_eq!((three.wanted(), three.replicas()), (0, 0));
    assert_eq!(three.voters(&set(&[1])), set(&[1]), "a site does not vote");
    assert_eq!(done_long_after(&three), vec![]);
    let all = set(&[1, 2, 3]);
    let stands = stands_in_the_way(&three, &set(&[1]), &all);
    assert_eq!(stands, Some(Obstacle::NoReplica));

    let mut told = three.clone();
    sites_may(&mut told, true).expect("taken");
    assert_eq!((told.wanted(), told.promised(), told.replicas()), (1, 0, 1));
    assert_eq!(told.voters(&set(&[1])), all);
    covered(&mut told, 1);
    assert_eq!(named_after(&told, 0, &[(3, said(1, 7, None))]), Some(3));

    // It leads: then it cannot be said that it may not.
    let handed = Command::HandOver { term: 1, to: 3 };
    assert_eq!(three.apply(&handed), Err(Refused::NoSuchNode));
    told.apply(&handed).expect("taken");
    assert_eq!((told.promised(), told.replicas()), (1, 1));
    assert_eq!(sites_may(&mut told, false), Err(Refused::Leads));
    told.apply(&Command::HandOver { term: 2, to: 1 })
        .expect("taken");
    sites_may(&mut told, false).expect("taken");
}

/// Within `failover.max_loss` a site that may not lead is named in what stands in the way, and leads as soon as it is told that it may.
#[test]
fn a_site_that_may_not_lead_stands_in_the_way_where_it_could() {
    use Kind::{Server, Site};
    let mut four = catalogue(&[Server, Server, Server, Site]);
    let policies = Policies {
        synchronous_replicas: Some(0),
        max_loss: Some(5000),
        ..Policies::default()
    };
    four.apply(&set_to(policies)).expect("taken");
    let within = [(4, said(1, 7, Some(900)))];
    assert_eq!(named(&four, &within), Err(Obstacle::Site(4)));
    let long = [(4, said(1, 7, Some(9000)))];
    let answers = Obstacle::Answers { needed: 1, have: 0 };
    assert_eq!(named(&four, &long), Err(answers));
    let older = [(2, said(1, 5, Some(8000))), within[0]];
    assert_eq!(named(&four, &older), Err(Obstacle::Site(4)));
    let newer = [(2, said(1, 5, Some(1000))), within[0]];
    let term = 2;
    let name = |node, lost| {
        Ok(Command::Name {
            node,
            term,
            lost: Some(lost),
        })
    };
    assert_eq!(named(&four, &newer), name(2, 1000));

    let (mut failover, now) = asked(&mut four, &within);
    let later = now + 300_000_000;
    failover.tick(&four, later);
    sites_may(&mut four, true).expect("nothing is promised");
    let done = failover.tick(&four, later);
    let name = Command::Name {
        node: 4,
        term,
        lost: Some(900),
    };
    assert_eq!(done, vec![Action::Propose(name)]);
    assert_eq!(sites_may(&mut four, false), Err(Refused::Late));

    let mut promised = catalogue(&[Server, Server, Server, Site]);
    asked(&mut promised, &within);
    assert_eq!(sites_may(&mut promised, true), Err(Refused::Late));
}

/// A site was promoted by hand while the members had no majority: what it leads is not lost, though it may not be named. As before it no commit counts on it.
#[test]
fn a_site_that_was_promoted_by_hand_leads_on() {
    use Kind::{Server, Site};
    let mut four = catalogue(&[Server, Server, Server, Site]);
    let answers = [
        (2, said(1, 7, None)),
        (3, said(1, 7, None)),
        (4, said(1 << 40, 8, None)),
    ];
    assert_eq!(named_after(&four, 0, &answers), Some(4));
    let took = Command::Took {
        node: 4,
        term: 1 << 40,
    };
    four.apply(&took).expect("taken");
    assert_eq!((four.wanted(), four.promised(), four.replicas()), (1, 0, 3));
    assert_eq!(four.voters(&set(&[1, 2, 3])), set(&[1, 2, 3]));
    covered(&mut four, 1);
    // One that held a commit may be the next leader, and this site does not count in its place.
    let handed = Command::HandOver {
        term: 1 << 40,
        to: 2,
    };
    four.apply(&handed).expect("taken");
    assert_eq!((four.promised(), four.replicas()), (0, 2));
}

/// A copy that was named and could not lead. Another one that stands as far is named at once.
#[test]
fn a_copy_that_cannot_lead_is_passed_over_where_another_stands_as_far() {
    use Kind::Server;
    let three = catalogue(&[Server, Server, Server]);
    let equal = [(2, unable(1, 7)), (3, said(1, 7, None))];
    assert_eq!(named_after(&three, 0, &equal), Some(3));
    // What the third one lacks may have been acknowledged, and the old primary is silent: the copy is tried again, when the others had time to answer.
    let further = [(2, unable(1, 8)), (3, said(1, 7, None))];
    assert_eq!(named_after(&three, 0, &further), None);
    assert_eq!(named_after(&three, 999, &further), None);
    assert_eq!(named_after(&three, 1000, &further), Some(2));
    // The old primary is back, and has all.
    let back = [(1, said(1, 7, None)), (2, unable(1, 8))];
    assert_eq!(named_after(&three, 0, &back), Some(1));
    // It cannot lead either.
    let none = [(1, unable(1, 8)), (2, unable(1, 8)), (3, unable(1, 8))];
    assert_eq!(named_after(&three, 1000, &none), Some(1));
    // Each is tried in turn.
    let tried = [
        (1, failed(1, 8, 9)),
        (2, failed(1, 8, 3)),
        (3, failed(1, 8, 4)),
    ];
    assert_eq!(named_after(&three, 1000, &tried), Some(2));
    let behind = [
        (1, failed(1, 8, 9)),
        (2, failed(1, 7, 3)),
        (3, failed(1, 7, 4)),
    ];
    assert_eq!(named_after(&three, 1000, &behind), Some(2));
}

/// What it has beyond the others was acknowledged only if enough others have it too.
#[test]
fn a_copy_that_cannot_lead_is_left_aside_where_enough_others_answer() {
    use Kind::Server;
    let mut five = catalogue(&[Server, Server, Server, Server, Server]);
    let policies = Policies {
        synchronous_replicas: Some(2),
        ..Policies::default()
    };
    five.apply(&set_to(policies)).expect("taken");
    let (term, by, change) = (1, 2, five.change());
    let covered = Command::Covered { term, by, change };
    five.apply(&covered).expect("taken");
    let mut answers = vec![
        (2, unable(1, 9)),
        (3, said(1, 8, None)),
        (4, said(1, 7, None)),
    ];
    // Three others of four have to answer.
    assert_eq!(named_after(&five, 999, &answers), None);
    assert_eq!(named_after(&five, 1000, &answers), Some(2));
    answers.push((5, said(1, 6, None)));
    assert_eq!(named_after(&five, 0, &answers), Some(3));
}

/// What becomes of it when all have had time to answer.
fn named(catalogue: &Catalogue, answers: &[(NodeId, Answer)]) -> Result<Command, Obstacle> {
    let mut catalogue = catalogue.clone();
    let (mut failover, now) = asked(&mut catalogue, answers);
    let actions = failover.tick(&catalogue, now + 300_000_000);
    match &actions[..] {
        [Action::Propose(command)] => Ok(command.clone()),
        _ => Err(failover.obstacle(&catalogue).expect("none is named")),
    }
}

#[test]
fn without_replicas_that_must_have_a_commit_nobody_is_named_unless_a_loss_is_allowed() {
    let catalogue = unpromised(None);
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    failover.tick(&catalogue, 0);
    assert_eq!(failover.tick(&catalogue, 10_000_000_000), vec![]);
    assert_eq!(
        failover.obstacle(&catalogue),
        Some(Obstacle::NothingPromised)
    );
}

#[test]
fn a_copy_is_named_that_lacks_no_more_than_is_allowed() {
    let allowed = unpromised(Some(5000));
    let name = |node, lost| {
        Ok(Command::Name {
            node,
            term: 2,
            lost,
        })
    };
    let loss = |within| Err(Obstacle::Loss { within });
    let one = |age| named(&allowed, &[(2, said(1, 7, age))]);
    assert_eq!(one(Some(5000)), name(2, Some(5000)));
    assert_eq!(one(Some(5001)), loss(Some(5001)));
    // As after a start, before the primary was heard.
    assert_eq!(one(None), loss(None));
    // It does not know that the last term began: it speaks of an earlier primary.
    assert_eq!(named(&allowed, &[(2, said(0, 7, Some(0)))]), loss(None));
    // What one copy has, the one that stands further has too.
    let further = [(2, said(1, 7, Some(4000))), (3, said(1, 8, Some(9000)))];
    assert_eq!(named(&allowed, &further), name(3, Some(4000)));
    // The old primary has all.
    let back = [(1, said(1, 9, None)), (2, said(1, 7, Some(9000)))];
    assert_eq!(named(&allowed, &back), name(1, None));
}

/// A copy that answers a moment later may have more.
#[test]
fn all_copies_have_a_moment_where_commits_may_be_lost() {
    let mut catalogue = unpromised(Some(5000));
    let (mut failover, now) = asked(&mut catalogue, &[(2, said(1, 7, Some(1000)))]);
    let actions = failover.tick(&catalogue, now + 299_000_000);
    assert!(
        actions.iter().all(|a| matches!(a, Action::Ask { .. })),
        "{actions:?}"
    );
    failover.answered(2, 3, said(1, 9, Some(500)));
    let actions = failover.tick(&catalogue, now + 300_000_000);
    let [Action::Propose(command)] = &actions[..] else {
        panic!("{actions:?}");
    };
    catalogue.apply(command).expect("in time");
    assert_eq!(catalogue.phase(), Some(Phase::Leading { node: 3, term: 2 }));
    let lost = Lost {
        term: 2,
        within: 500,
    };
    assert_eq!(catalogue.lost(), Some(lost), "it is told afterwards");
}

/// A choice that another build has begun says nothing of the term before: nothing can be known of the loss.
#[test]
fn a_command_of_the_build_before_names_no_loss() {
    let old = r#"{"Name":{"node":2,"term":5}}"#;
    let command: Command = serde_json::from_str(old).expect("read");
    let (node, term, lost) = (2, 5, None);
    assert_eq!(command, Command::Name { node, term, lost });
    let old = r#"{"Promised":{"term":3,"position":9}}"#;
    let answer: Answer = serde_json::from_str(old).expect("read");
    assert_eq!(answer, said(3, 9, None));
    assert_eq!(
        answer,
        said(3, 9, None),
        "it could lead, as far as is known"
    );
    // The build before reads what is said now.
    let now = serde_json::to_value(said(3, 9, Some(4))).expect("written");
    assert_eq!(now["Promised"]["position"], 9);
}

/// A term after which none can come, in the log of a build that has taken it: no member stops where it is applied.
#[test]
fn a_command_with_the_last_of_all_terms_ends_no_member() {
    use Kind::Server;
    let members = || catalogue(&[Server, Server, Server]);
    let mut choosing = members();
    let begin = Command::Begin {
        after: 1,
        above: u64::MAX,
    };
    assert_eq!(choosing.apply(&begin), Err(Refused::NoSuchTerm));
    assert_eq!(choosing, members());
    let mut taken = members();
    let (node, term) = (2, u64::MAX);
    let took = Command::Took { node, term };
    taken.apply(&took).expect("as builds before did");
    let over = Command::HandOver { term, to: 3 };
    assert_eq!(taken.apply(&over), Err(Refused::NoSuchTerm));
    let begin = Command::Begin {
        after: term,
        above: 0,
    };
    assert_eq!(taken.apply(&begin), Err(Refused::NoSuchTerm));
    for command in [
        took,
        Command::Begin {
            after: 1,
            above: HIGHEST_TERM + 1,
        },
    ] {
        assert!(!command.is_possible(), "{command:?}");
    }
    // Those after the highest are counted: the members can choose still.
    let begin = Command::Begin {
        after: HIGHEST_TERM + 7,
        above: HIGHEST_TERM,
    };
    assert!(begin.is_possible());
}

/// A copy that names such a term is as one that does not answer.
#[test]
fn a_copy_that_knows_the_last_of_all_terms_is_chosen_without() {
    use Kind::Server;
    let mut catalogue = catalogue(&[Server, Server, Server]);
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    let long = 10_000_000_000;
    failover.tick(&catalogue, 0);
    let mut step = |failover: &mut Failover| {
        for action in failover.tick(&catalogue, long) {
            if let Action::Propose(command) = action {
                assert!(command.is_possible(), "{command:?}");
                catalogue.apply(&command).expect("in time");
            }
        }
        catalogue.phase()
    };
    assert_eq!(
        step(&mut failover),
        Some(Phase::Choosing { term: 2, before: 1 })
    );
    step(&mut failover);
    failover.answered(2, 3, Answer::Later(u64::MAX));
    let end = End::default();
    for node in [1, 2] {
        failover.answered(2, node, Answer::Promised(end.into()));
    }
    let named = step(&mut failover);
    assert!(
        matches!(named, Some(Phase::Leading { term: 2, .. })),
        "{named:?}"
    );
}
