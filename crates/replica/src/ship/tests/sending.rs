//! The sender: every transition, and what it refuses.

use super::super::message::{Message, Refusal, Start, VERSION};
use super::super::sender::{Command, Event, Facts, Sender};
use super::*;

fn hello(cluster: u128, terms: &[(u64, Position)], last: Position) -> Message {
    Message::Hello {
        version: u16::from(VERSION),
        cluster,
        node: "r1".into(),
        terms: terms.to_vec(),
        last,
        ring: 2 * 1000,
    }
}

fn greeted(hello: Message, facts: Facts) -> (Sender, Vec<Command>) {
    let (mut s, mut out) = (Sender::new(Peer::Member), Vec::new());
    s.greet(hello, facts, &mut out);
    (s, out)
}

fn done(s: &mut Sender, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    s.handle(event, 77, &mut out);
    out
}

fn refusal(hello: Message, facts: Facts) -> Refusal {
    let (_, out) = greeted(hello, facts);
    let reason = out.iter().find_map(|c| match c {
        Command::Send(Message::Refused { term: 5, reason }) => Some(reason.clone()),
        _ => None,
    });
    assert!(matches!(out.last(), Some(Command::Close(_))), "{out:?}");
    reason.expect("a refusal")
}

const ONE: &[(u64, Position)] = &[(1, Position::ZERO)];

/// A sender in a catch-up behind position 0 of group 0, that asked for the log.
fn catching_up() -> (Sender, Vec<Arc<Group>>) {
    let (mut s, out) = greeted(hello(CLUSTER, &facts().terms, upto(0)), facts());
    assert!(matches!(
        out[..],
        [Command::Send(Message::Welcome {
            start: Start::Resume(at), ..
        })] if at == upto(0)
    ));
    let out = done(&mut s, Event::Time);
    assert!(
        matches!(out[..], [
            Command::Send(Message::Tick { after, upto: to, .. }),
            Command::ReadLog { from, bytes: 1000 }
        ] if after == to && from == to && to == upto(0)),
        "{out:?}"
    );
    assert_eq!(s.state_name(), "catchup");
    (s, groups(14))
}

fn live() -> (Sender, Vec<Arc<Group>>) {
    let (mut s, all) = catching_up();
    let mut out = done(
        &mut s,
        Event::LogRead {
            from: upto(0),
            groups: all[1..10].to_vec(),
            upto: upto(9),
        },
    );
    while s.state_name() != "streaming" {
        let received = s.sent();
        out = done(&mut s, ack(5, received));
    }
    assert!(out.contains(&Command::Joined));
    (s, all)
}

fn ack(term: u64, at: Position) -> Event {
    Event::Message(Message::Ack {
        term,
        received: at,
        persisted: at,
        applied: at,
        visible: at,
        echo_micros: 3,
    })
}

/// (after, upto) of the batches and ticks among these.
fn steps(out: &[Command]) -> Vec<(Position, Position)> {
    out.iter()
        .filter_map(|c| match c {
            Command::SendBatch { step, .. } => Some((step.after, step.upto)),
            Command::Send(m) => m.step().map(|s| (s.after, s.upto)),
            _ => None,
        })
        .collect()
}

#[test]
fn who_is_refused_and_why() {
    assert_eq!(refusal(hello(9, ONE, p(1)), facts()), Refusal::OtherCluster);
    let newer = hello(CLUSTER, &[(1, Position::ZERO), (6, p(1))], p(1));
    let (_, out) = greeted(newer.clone(), facts());
    assert!(out.contains(&Command::HeardOfTerm(6)));
    assert_eq!(refusal(newer, facts()), Refusal::OlderTerm);
    let deposed = Facts {
        deposed: true,
        ..facts()
    };
    assert_eq!(refusal(hello(CLUSTER, ONE, p(0)), deposed), Refusal::Sealed);
    // Term 5 began after 1.0 here; who went on in term 1 beyond that, diverged.
    assert_eq!(
        refusal(hello(CLUSTER, ONE, p(4)), facts()),
        Refusal::Diverged { at: p(0) }
    );
    let ahead = hello(CLUSTER, &facts().terms, upto(10));
    let (_, out) = greeted(ahead, facts());
    let asked = [
        Command::Send(Message::Show { after: upto(9) }),
        Command::ReadAround(upto(9)),
    ];
    assert_eq!(out, asked, "what the primary has lost is to be shown");
    let mut other = hello(CLUSTER, ONE, p(0));
    if let Message::Hello { version, .. } = &mut other {
        *version = 9;
    }
    assert!(matches!(refusal(other, facts()), Refusal::Other(_)));
    let (_, out) = greeted(Message::Seal, facts());
    assert!(matches!(out[..], [Command::Close(_)]));
}

#[test]
fn an_empty_or_far_behind_replica_gets_a_checkpoint_then_the_log() {
    let short = Facts {
        reaches_back_to: upto(3),
        ..facts()
    };
    for (h, f) in [
        (hello(0, ONE, Position::ZERO), facts()),
        (hello(CLUSTER, ONE, Position::ZERO), facts()),
        (hello(CLUSTER, &facts().terms, upto(2)), short),
    ] {
        let (mut s, out) = greeted(h, f);
        assert_eq!(out, [Command::OpenCheckpoint]);
        assert_eq!(s.retain(), None);
        let opened = Event::CheckpointOpened {
            number: 4,
            bytes: 50,
            start: upto(5),
        };
        let out = done(&mut s, opened);
        let start = Start::Bootstrap {
            number: 4,
            bytes: 50,
            start: upto(5),
        };
        assert!(
            matches!(&out[..], [Command::Send(Message::Welcome { start: s, .. })] if *s == start)
        );
        assert_eq!(s.retain(), Some(upto(5)), "the log behind it is kept");
        let ask = |offset, bytes| Event::Message(Message::Fetch { offset, bytes });
        assert_eq!(
            done(&mut s, ask(40, 30)),
            [Command::ReadCheckpoint {
                offset: 40,
                bytes: 10
            }]
        );
        let read = Event::CheckpointRead {
            offset: 40,
            bytes: vec![1; 10],
        };
        assert!(matches!(
            done(&mut s, read)[..],
            [Command::Send(Message::Checkpoint {
                offset: 40,
                last: true,
                ..
            })]
        ));
        assert!(done(&mut s, Event::Time).is_empty());
        let out = done(&mut s, Event::Message(Message::Resume { from: upto(5) }));
        assert!(matches!(out[..], [Command::ReadLog { from, .. }] if from == upto(5)));
    }
}

#[test]
fn asking_beyond_a_checkpoint_or_elsewhere_ends_it() {
    for message in [
        Message::Fetch {
            offset: 50,
            bytes: 1,
        },
        Message::Resume { from: upto(6) },
        Message::Hello {
            version: 1,
            cluster: 1,
            node: String::new(),
            terms: vec![],
            last: p(1),
            ring: 0,
        },
    ] {
        let (mut s, _) = greeted(hello(0, ONE, Position::ZERO), facts());
        done(
            &mut s,
            Event::CheckpointOpened {
                number: 4,
                bytes: 50,
                start: upto(5),
            },
        );
        let out = done(&mut s, Event::Message(message));
        assert!(matches!(out[..], [Command::Close(_)]));
        assert_eq!(s.state_name(), "stopping");
        assert!(done(&mut s, Event::Time).is_empty(), "closed is closed");
    }
}

#[test]
fn a_catch_up_is_paced_by_acknowledgements() {
    let (mut s, all) = catching_up();
    let size = all[0].as_bytes().len() as u64;
    assert!(size * 2 <= 1000 && size * 3 > 1000);
    let out = done(
        &mut s,
        Event::LogRead {
            from: upto(0),
            groups: all[1..10].to_vec(),
            upto: upto(9),
        },
    );
    let last = |g: usize| all[g].header().last;
    assert_eq!(steps(&out), [(upto(0), last(1)), (last(1), last(2))]);
    // Nothing more before an acknowledgement, whatever happens.
    let shipped = Event::Shipped {
        after: upto(9),
        upto: upto(10),
        group: Some(all[10].clone()),
    };
    assert!(done(&mut s, shipped).is_empty());
    assert!(done(&mut s, Event::Time).is_empty(), "was not idle");
    let out = done(&mut s, Event::Time);
    assert_eq!(steps(&out), [(last(2), last(2))], "a tick when idle");
    let out = done(&mut s, ack(5, last(1)));
    assert_eq!(steps(&out), [(last(2), last(3))]);
    assert!(
        out.iter()
            .any(|c| matches!(c, Command::Report { echo_micros: 3, .. }))
    );
    // An answer to a question that is no longer asked.
    let late = Event::LogRead {
        from: upto(0),
        groups: all[1..3].to_vec(),
        upto: upto(2),
    };
    assert!(done(&mut s, late).is_empty());
    for g in 3..7 {
        done(&mut s, ack(5, last(g)));
    }
    // The last of what was read ends where the reading did, holes included; then comes the one appended meanwhile.
    let out = done(&mut s, ack(5, last(7)));
    assert_eq!(steps(&out), [(last(8), upto(9))]);
    assert!(
        matches!(out.last(), Some(Command::ReadLog { from, .. }) if *from == upto(9)),
        "{out:?}"
    );
    done(&mut s, ack(5, upto(9)));
    assert_eq!(s.state_name(), "catchup");
    let out = done(
        &mut s,
        Event::LogRead {
            from: upto(9),
            groups: vec![all[10].clone()],
            upto: upto(10),
        },
    );
    assert_eq!(steps(&out), [(upto(9), upto(10))]);
    assert!(out.contains(&Command::Joined));
    assert_eq!(s.state_name(), "streaming");
    assert_eq!(s.retain(), Some(upto(9)));
}

#[test]
fn a_log_that_ends_early_is_asked_again_when_time_passes() {
    let (mut s, _) = catching_up();
    let nothing = Event::LogRead {
        from: upto(0),
        groups: vec![],
        upto: upto(0),
    };
    assert!(done(&mut s, nothing).is_empty(), "no busy loop");
    done(&mut s, Event::Time);
    let out = done(&mut s, Event::LogMissing);
    assert!(matches!(out[..], [Command::Close(_)]));
}

#[test]
fn live_it_never_waits_and_falls_back_when_something_went_by() {
    let (mut s, all) = live();
    let ship = |a: u32, g: usize| Event::Shipped {
        after: upto(a),
        upto: upto(g as u32),
        group: Some(all[g].clone()),
    };
    // Far more than the window, without one acknowledgement.
    for g in 10..13 {
        let out = done(&mut s, ship(g as u32 - 1, g));
        assert_eq!(steps(&out), [(upto(g as u32 - 1), upto(g as u32))]);
    }
    assert!(done(&mut s, ship(9, 10)).is_empty(), "sent already");
    let holes = Event::Shipped {
        after: upto(12),
        upto: p(99),
        group: None,
    };
    assert_eq!(steps(&done(&mut s, holes)), [(upto(12), p(99))]);
    let unseen = Event::Shipped {
        after: p(120),
        upto: p(130),
        group: Some(all[13].clone()),
    };
    let out = done(&mut s, unseen);
    assert!(matches!(out[..], [Command::ReadLog { from, .. }] if from == p(99)));
    assert_eq!(s.state_name(), "catchup");
}

#[test]
fn published_travels_at_once_and_ticks_flow_when_idle() {
    let (mut s, _) = live();
    let out = done(&mut s, Event::Published(p(20)));
    assert!(
        matches!(out[..], [Command::Send(Message::Tick { published, sent_micros: 77, .. })] if published == p(20))
    );
    assert!(done(&mut s, Event::Published(p(19))).is_empty());
    assert!(done(&mut s, Event::Time).is_empty());
    for _ in 0..3 {
        // A tick is something sent: so every other time, at least.
        let out = [done(&mut s, Event::Time), done(&mut s, Event::Time)].concat();
        assert!(!steps(&out).is_empty());
    }
}

#[test]
fn an_overrun_replica_is_caught_up_from_where_it_is() {
    let (mut s, all) = live();
    let out = done(&mut s, Event::Message(Message::Resume { from: upto(4) }));
    assert!(matches!(out[..], [Command::ReadLog { from, .. }] if from == upto(4)));
    // A late acknowledgement of what was sent before is no lie.
    assert!(!done(&mut s, ack(5, upto(8))).is_empty());
    let out = done(
        &mut s,
        Event::LogRead {
            from: upto(4),
            groups: all[5..10].to_vec(),
            upto: upto(9),
        },
    );
    assert_eq!(steps(&out)[0].0, upto(4));
    let out = done(&mut s, Event::Message(Message::Resume { from: upto(12) }));
    assert!(
        matches!(out[..], [Command::Close(_)]),
        "beyond what was sent"
    );
}

#[test]
fn acknowledgements_of_other_terms() {
    let (mut s, _) = live();
    let at = s.sent();
    assert!(
        done(&mut s, ack(4, at)).is_empty(),
        "an older one says nothing"
    );
    let out = done(&mut s, ack(6, at));
    assert!(matches!(
        out[..],
        [Command::HeardOfTerm(6), Command::Close(_)]
    ));
    let (mut s, _) = live();
    let out = done(&mut s, ack(5, p(3000)));
    assert!(matches!(out[..], [Command::Close(_)]), "never sent");
}

#[test]
fn a_sealed_primary_says_so_when_all_is_sent() {
    let (mut s, all) = live();
    assert_eq!(done(&mut s, Event::Message(Message::Seal)), [Command::Seal]);
    assert!(done(&mut s, Event::Sealed(upto(10))).is_empty());
    let out = done(
        &mut s,
        Event::Shipped {
            after: upto(9),
            upto: upto(10),
            group: Some(all[10].clone()),
        },
    );
    let sealed = Command::Send(Message::Sealed {
        term: 5,
        last: upto(10),
    });
    assert_eq!(out.last(), Some(&sealed));
    assert!(
        done(&mut s, Event::Time).contains(&sealed),
        "again, because it may be lost"
    );
}

/// Whether the replica is told to acknowledge at once, as far as it is told anything.
fn told(out: &[Command]) -> Option<bool> {
    let mut all = out.iter().filter_map(|c| match c {
        Command::Send(Message::Acks { at_once }) => Some(*at_once),
        _ => None,
    });
    all.next_back()
}

#[test]
fn a_replica_is_told_whether_somebody_waits_for_it() {
    let (mut s, all) = live();
    s.awaits(false);
    assert_eq!(
        told(&done(&mut s, Event::Time)),
        None,
        "it does not know of that"
    );
    s.knows_acks();
    let ship = |s: &mut Sender, n: u32| {
        let (after, upto) = (upto(n - 1), upto(n));
        let group = Some(all[n as usize].clone());
        done(s, Event::Shipped { after, upto, group })
    };
    assert_eq!(told(&ship(&mut s, 10)), None, "not with each group");
    assert_eq!(told(&done(&mut s, Event::Time)), Some(false));
    assert_eq!(told(&done(&mut s, Event::Time)), None, "once");
    s.awaits(true);
    let out = ship(&mut s, 11);
    let at_once = Command::Send(Message::Acks { at_once: true });
    assert_eq!(out.first(), Some(&at_once), "before what is waited for");
    assert_eq!(steps(&out).len(), 1);
    // Its catch-up is paced by what it acknowledges.
    s.awaits(false);
    assert_eq!(told(&done(&mut s, Event::Time)), Some(false));
    done(&mut s, Event::Message(Message::Resume { from: upto(4) }));
    assert_eq!(told(&done(&mut s, Event::Time)), Some(true));
}
