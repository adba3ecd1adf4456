//! A follower that sends each message of the protocol with each lie, as a stranger and as a node of the cluster.
//!
//! Left out on purpose: what a primary could lie about to its replicas; a replica follows the one that its operator has named.

use super::super::message::{Message, VERSION};
use super::super::sender::{Command, Event, Sender};
use super::*;
use base::MAX_TERM;
use proptest::prelude::*;
use std::sync::OnceLock;

const TERM: u64 = 5;

fn hello(terms: &[(u64, Position)], last: Position) -> Message {
    Message::Hello {
        version: u16::from(VERSION),
        cluster: CLUSTER,
        node: "mallory".into(),
        terms: terms.to_vec(),
        last,
        ring: 2 * 1000,
    }
}

fn greeted(peer: Peer, hello: Message) -> (Sender, Vec<Command>) {
    let (mut s, mut out) = (Sender::new(peer), Vec::new());
    s.greet(hello, facts(), &mut out);
    (s, out)
}

fn tell(s: &mut Sender, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    s.handle(event, 77, &mut out);
    out
}

/// One that is sent the log behind group 0, up to group 3.
fn followed(peer: Peer) -> (Sender, Position) {
    let (mut s, _) = greeted(peer, hello(&facts().terms, upto(0)));
    tell(&mut s, Event::Time);
    static LOG: OnceLock<Vec<Arc<Group>>> = OnceLock::new();
    let log = LOG.get_or_init(|| groups(4));
    let read = Event::LogRead {
        from: upto(0),
        groups: log[1..4].to_vec(),
        upto: upto(3),
    };
    tell(&mut s, read);
    let sent = s.sent();
    assert!(sent > upto(0));
    (s, sent)
}

fn ack(term: u64, received: Position, rest: [Position; 3]) -> Message {
    let [persisted, applied, visible] = rest;
    Message::Ack {
        term,
        received,
        persisted,
        applied,
        visible,
        echo_micros: i64::MAX,
    }
}

fn is_closed(out: &[Command]) -> bool {
    matches!(out.last(), Some(Command::Close(_)))
}

fn is_believed(c: &Command) -> bool {
    matches!(
        c,
        Command::Report { .. } | Command::Seal | Command::HeardOfTerm(_)
    )
}

#[test]
fn a_stranger_is_sent_the_log_and_nothing_that_it_says_counts() {
    let (mut s, sent) = followed(Peer::Stranger);
    assert_eq!(s.retain(), None, "no log is kept for it");
    let out = tell(&mut s, Event::Message(ack(TERM, sent, [sent; 3])));
    assert!(!out.iter().any(is_believed), "{out:?}");
    assert!(!is_closed(&out), "it goes on reading");
    let out = tell(&mut s, Event::Message(Message::Seal));
    assert!(is_closed(&out) && !out.iter().any(is_believed), "{out:?}");
}

/// Else a role that may read the log could have all of it read into the primary's memory.
#[test]
fn a_ring_of_any_size_has_a_bounded_part_of_the_log_read() {
    for peer in [Peer::Member, Peer::Stranger] {
        let mut hello = hello(&facts().terms, upto(0));
        if let Message::Hello { ring, .. } = &mut hello {
            *ring = u64::MAX;
        }
        let (mut s, mut all) = greeted(peer, hello);
        all.extend(tell(&mut s, Event::Time));
        let read = all.iter().find_map(|c| match c {
            Command::ReadLog { bytes, .. } => Some(*bytes),
            _ => None,
        });
        assert_eq!(read, Some(64 << 20));
    }
}

#[test]
fn a_member_is_reported_and_may_take_over() {
    let (mut s, sent) = followed(Peer::Member);
    assert!(s.retain().is_some());
    let out = tell(&mut s, Event::Message(ack(TERM, sent, [sent; 3])));
    assert!(matches!(out[0], Command::Report { .. }), "{out:?}");
    let out = tell(&mut s, Event::Message(Message::Seal));
    assert_eq!(out[0], Command::Seal);
}

#[test]
fn nobody_acknowledges_what_was_not_sent_or_contradicts_itself() {
    for peer in [Peer::Member, Peer::Stranger] {
        let (_, sent) = followed(peer);
        let (less, more) = (upto(0), Position::from_u64(sent.as_u64() + 1));
        for (received, rest) in [
            (more, [sent; 3]),
            (Position::MAX, [Position::ZERO; 3]),
            (less, [sent, less, less]),
            (less, [less, sent, less]),
            (sent, [sent, less, sent]),
            (sent, [sent, sent, Position::MAX]),
        ] {
            let (mut s, _) = followed(peer);
            let out = tell(&mut s, Event::Message(ack(TERM, received, rest)));
            assert!(is_closed(&out), "{peer:?} {received} {rest:?}: {out:?}");
            assert!(!out.iter().any(is_believed), "{out:?}");
        }
    }
}

fn is_lost(out: &[Command]) -> bool {
    out.iter().any(|c| matches!(c, Command::Lost { .. }))
}

/// A primary that holds ten groups hears a member that says it has eleven, and reads its own log; `then` is what the member says or does.
fn claimed(then: &[Event]) -> Vec<Command> {
    let (mut s, mut out) = (Sender::new(Peer::Member), Vec::new());
    let facts = Facts {
        terms: vec![(1, Position::ZERO), (TERM, Position::ZERO)],
        ..facts()
    };
    s.greet(hello(&facts.terms, upto(10)), facts, &mut out);
    assert!(!is_lost(&out), "a bare word: {out:?}");
    let here = log(CLUSTER, &[5; 10], 1 << 20, 0).around(upto(9)).unwrap();
    out.extend(tell(&mut s, Event::AroundRead(Box::new(here))));
    assert!(!is_lost(&out) && !is_closed(&out), "{out:?}");
    for event in then {
        s.handle(event.clone(), 77, &mut out);
    }
    s.handle(Event::Time, 77, &mut out);
    s.handle(Event::Time, 77 + 3_000_000, &mut out);
    assert!(is_closed(&out), "{out:?}");
    out
}

fn shows(groups: usize, salt: u8, at: Position) -> Event {
    let there = log(CLUSTER, &vec![5; groups], 1 << 20, salt);
    let around = there.around(at).unwrap();
    Event::Message(Message::Shown(Box::new(around)))
}

#[test]
fn a_member_that_shows_it_is_ahead_stops_the_primary() {
    let out = claimed(&[shows(11, 0, upto(9))]);
    let (ours, theirs) = (upto(9), upto(10));
    assert!(out.contains(&Command::Lost { ours, theirs }), "{out:?}");
}

#[test]
fn a_member_that_lies_about_being_ahead_is_refused_and_nothing_else_happens() {
    let nothing = Box::new(wal::Around::default());
    let ways: [(&str, &[Event]); 7] = [
        ("says no more", &[]),
        ("shows nothing", &[Event::Message(Message::Shown(nothing))]),
        ("has what the primary has", &[shows(10, 0, upto(9))]),
        ("has less", &[shows(4, 0, upto(9))]),
        ("shows another place", &[shows(11, 0, upto(5))]),
        ("is of another history", &[shows(11, 3, upto(9))]),
        (
            "acknowledges",
            &[Event::Message(ack(TERM, upto(10), [upto(10); 3]))],
        ),
    ];
    for (way, then) in ways {
        let out = claimed(then);
        assert!(!is_lost(&out), "{way}: {out:?}");
        let doubted = |c: &&Command| matches!(c, Command::Unproven { .. });
        assert_eq!(out.iter().filter(doubted).count(), 1, "{way}: {out:?}");
        assert!(!out.iter().any(is_believed), "{way}: {out:?}");
    }
}

#[test]
fn a_stranger_is_not_even_asked() {
    let (_, out) = greeted(Peer::Stranger, hello(&facts().terms, upto(10)));
    assert!(!is_lost(&out) && is_closed(&out), "{out:?}");
    let asked = |c: &Command| matches!(c, Command::ReadAround(_));
    assert!(!out.iter().any(asked), "{out:?}");
}

#[test]
fn only_a_member_deposes() {
    for term in [TERM + 1, MAX_TERM] {
        for (peer, wanted) in [
            (Peer::Member, Command::HeardOfTerm(term)),
            (Peer::Stranger, Command::HintOfTerm(term)),
        ] {
            let newer = [(1, Position::ZERO), (term, p(0))];
            let (_, out) = greeted(peer, hello(&newer, upto(0)));
            assert_eq!(out[0], wanted, "{peer:?}");
            assert!(is_closed(&out));
            let (mut s, sent) = followed(peer);
            let out = tell(&mut s, Event::Message(ack(term, sent, [sent; 3])));
            assert_eq!(out[0], wanted, "{peer:?}");
            assert!(is_closed(&out));
        }
    }
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        (0u32..14).prop_map(upto),
        any::<u64>().prop_map(Position::from_u64),
        Just(Position::ZERO),
        Just(Position::MAX),
    ]
}

fn term() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 3u64..8, Just(MAX_TERM)]
}

/// Each message that there is, also those of a primary, with numbers that are true now and then.
fn message() -> impl Strategy<Value = Message> {
    let marks = (position(), position(), position(), position());
    let step = (term(), position(), position());
    prop_oneof![
        4 => (term(), marks).prop_map(|(t, (a, b, c, d))| ack(t, a, [b, c, d])),
        2 => position().prop_map(|from| Message::Resume { from }),
        2 => (any::<u64>(), any::<u32>())
            .prop_map(|(offset, bytes)| Message::Fetch { offset, bytes }),
        1 => Just(Message::Seal),
        1 => position().prop_map(|after| Message::Show { after }),
        1 => (0usize..12, 0u8..2, position()).prop_map(|(n, salt, at)| match shows(n, salt, at) {
            Event::Message(m) => m,
            _ => Message::Seal,
        }),
        1 => (term(), position())
            .prop_map(|(t, last)| hello(&[(1, Position::ZERO), (t.max(2), p(0))], last)),
        1 => (term(), position()).prop_map(|(term, last)| Message::Sealed { term, last }),
        1 => step.prop_map(|(term, a, b)| Message::Tick {
            term,
            stream: CLUSTER,
            after: a.min(b),
            upto: a.max(b),
            published: b,
            sent_micros: 0,
        }),
    ]
}

proptest! {
    #[test]
    fn whatever_a_follower_says(member in any::<bool>(), said in prop::collection::vec(message(), 1..20)) {
        let peer = if member { Peer::Member } else { Peer::Stranger };
        let (mut s, mut most) = followed(peer);
        for m in said {
            let out = tell(&mut s, Event::Message(m));
            for c in &out {
                match c {
                    Command::Report { acked, .. } => {
                        prop_assert!(member);
                        prop_assert!(acked.received <= most, "{acked:?}, sent {most}");
                        prop_assert!(acked.persisted.max(acked.applied) <= acked.received);
                        prop_assert!(acked.visible <= acked.applied);
                    }
                    Command::Lost { .. } => prop_assert!(false, "it was not asked"),
                    Command::Seal => prop_assert!(member),
                    Command::HeardOfTerm(t) => prop_assert!(member && *t > TERM && *t <= MAX_TERM),
                    Command::HintOfTerm(t) => prop_assert!(!member && *t > TERM),
                    _ => {}
                }
            }
            most = most.max(s.sent());
        }
    }
}
