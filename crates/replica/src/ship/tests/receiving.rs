//! The receiver: every transition, and what it refuses.

use super::super::message::{MAX_CHUNK, Message, Refusal, Start};
use super::super::receiver::{Command, Event, Identity, Receiver};
use super::*;

fn identity(last: Position) -> Identity {
    Identity {
        cluster: CLUSTER,
        node: "r1".into(),
        terms: vec![(1, Position::ZERO)],
        heard: 1,
        last,
        ring: 1 << 16,
    }
}

fn done(r: &mut Receiver, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    r.handle(event, &mut out);
    out
}

fn say(r: &mut Receiver, message: Message) -> Vec<Command> {
    done(r, Event::Message(message))
}

fn terms() -> Vec<(u64, Position)> {
    vec![(1, Position::ZERO), (5, p(9))]
}

fn welcome(term: u64, start: Start) -> Message {
    let mut terms = terms();
    terms[1].0 = term;
    Message::Welcome {
        cluster: CLUSTER,
        term,
        terms,
        start,
    }
}

fn streaming() -> Receiver {
    let mut r = Receiver::new(identity(p(9)));
    let out = done(&mut r, Event::Connected);
    assert!(
        matches!(&out[..], [Command::Send(Message::Hello { last, cluster: CLUSTER, .. })] if *last == p(9))
    );
    let out = say(&mut r, welcome(5, Start::Resume(p(9))));
    assert_eq!(
        out,
        [Command::SetTerms(terms())],
        "before anything is taken"
    );
    assert!(r.is_streaming());
    r
}

fn batch(after: u32, upto: u32) -> Message {
    Message::Batch {
        term: 5,
        stream: CLUSTER,
        after: p(after),
        upto: p(upto),
        published: p(upto),
        sent_micros: i64::from(upto),
        group: vec![],
    }
}

fn tick(term: u64, stream: u128, after: u32, upto: u32) -> Message {
    Message::Tick {
        term,
        stream,
        after: p(after),
        upto: p(upto),
        published: p(1),
        sent_micros: 0,
    }
}

fn written(out: &[Command]) -> Vec<(Position, bool)> {
    let one = |c: &Command| match c {
        Command::Write {
            message, restart, ..
        } => Some((message.step().unwrap().upto, *restart)),
        _ => None,
    };
    out.iter().filter_map(one).collect()
}

fn left(out: &[Command]) -> bool {
    matches!(out, [.., Command::Close(_), Command::Reconnect { .. }])
}

#[test]
fn the_chain_is_followed() {
    let mut r = streaming();
    let out = say(&mut r, batch(9, 12));
    assert_eq!(written(&out), [(p(12), true)], "the first begins a run");
    assert!(out.contains(&Command::Published(p(12))));
    assert_eq!(written(&say(&mut r, batch(12, 14))), [(p(14), false)]);
    // Doubles, and what ends no higher, say *published* and nothing else.
    assert_eq!(say(&mut r, batch(9, 12)), [Command::Published(p(12))]);
    assert_eq!(
        say(&mut r, tick(5, CLUSTER, 14, 14)),
        [Command::Published(p(1))]
    );
    assert_eq!(
        written(&say(&mut r, tick(5, CLUSTER, 14, 15))),
        [(p(15), false)]
    );
    // Begins lower and ends higher: the tail is new.
    assert_eq!(written(&say(&mut r, batch(13, 17))), [(p(17), false)]);
}

#[test]
fn a_gap_is_asked_for_once_and_again_when_time_passes() {
    let mut r = streaming();
    let ask = Command::Send(Message::Resume { from: p(9) });
    assert!(say(&mut r, batch(12, 14)).contains(&ask));
    assert!(!say(&mut r, batch(14, 16)).contains(&ask), "once");
    let mut asked = Vec::new();
    for n in 1..130 {
        if done(&mut r, Event::Time).contains(&ask) {
            asked.push(n);
        }
        say(&mut r, tick(5, CLUSTER, 16, 16));
    }
    assert_eq!(asked, [5, 10, 20, 40, 80, 120]);
    assert_eq!(written(&say(&mut r, batch(9, 12))), [(p(12), true)]);
    let next = Command::Send(Message::Resume { from: p(12) });
    assert!(say(&mut r, batch(14, 16)).contains(&next), "the next gap");
}

#[test]
fn an_overrun_begins_a_new_run_where_the_consumer_is() {
    let mut r = streaming();
    say(&mut r, batch(9, 12));
    say(&mut r, batch(12, 14));
    let out = done(&mut r, Event::Overrun { from: p(12) });
    assert_eq!(out, [Command::Send(Message::Resume { from: p(12) })]);
    assert!(
        written(&say(&mut r, batch(14, 16))).is_empty(),
        "still on its way"
    );
    assert_eq!(written(&say(&mut r, batch(12, 14))), [(p(14), true)]);
    // Overrun while away: the greeting says where.
    done(&mut r, Event::Disconnected);
    assert!(done(&mut r, Event::Overrun { from: p(12) }).is_empty());
    let out = done(&mut r, Event::Connected);
    assert!(matches!(&out[..], [Command::Send(Message::Hello { last, .. })] if *last == p(12)));
}

#[test]
fn other_terms_and_streams_end_the_connection() {
    for message in [
        tick(4, CLUSTER, 9, 10),
        tick(6, CLUSTER, 9, 10),
        tick(5, 1, 9, 10),
        Message::Sealed {
            term: 4,
            last: p(9),
        },
        Message::Seal,
    ] {
        let mut r = streaming();
        let out = say(&mut r, message);
        assert!(left(&out) && written(&out).is_empty(), "{out:?}");
    }
    // At the greeting: a primary of an older term, one that resumes elsewhere, one that contradicts itself.
    let confused = Message::Welcome {
        cluster: CLUSTER,
        term: 9,
        terms: terms(),
        start: Start::Resume(p(9)),
    };
    let mut first = streaming();
    for message in [
        welcome(4, Start::Resume(p(9))),
        welcome(5, Start::Resume(p(8))),
        confused,
    ] {
        done(&mut first, Event::Disconnected);
        done(&mut first, Event::Connected);
        let out = say(&mut first, message);
        assert!(left(&out), "{out:?}");
    }
}

#[test]
fn refusals() {
    let refused = |reason, term| {
        let mut r = streaming();
        done(&mut r, Event::Disconnected);
        done(&mut r, Event::Connected);
        let out = say(&mut r, Message::Refused { term, reason });
        (out, r)
    };
    let (out, mut r) = refused(Refusal::Diverged { at: p(7) }, 6);
    assert_eq!(out[0], Command::Diverged { at: p(7), term: 6 });
    assert!(r.is_stopped() && done(&mut r, Event::Connected).is_empty());
    let (out, r) = refused(Refusal::Diverged { at: p(7) }, 4);
    assert!(
        left(&out) && !r.is_stopped(),
        "an old primary knows nothing"
    );
    // Of the term that is followed: the primary has lost log, and nothing here gives way, whatever it calls that.
    for reason in [
        Refusal::Diverged { at: p(7) },
        Refusal::Ahead {
            ours: p(7),
            theirs: p(9),
        },
        Refusal::Unproven {
            ours: p(7),
            why: "no".into(),
        },
    ] {
        let (out, r) = refused(reason, 5);
        assert!(left(&out) && !r.is_stopped());
        assert!(!out.iter().any(|c| matches!(c, Command::Diverged { .. })));
    }
    let (out, r) = refused(Refusal::OtherCluster, 6);
    assert!(matches!(out[0], Command::Refuse(_)) && r.is_stopped());
    for reason in [
        Refusal::OlderTerm,
        Refusal::Sealed,
        Refusal::Other("full".into()),
    ] {
        let (out, r) = refused(reason, 4);
        assert!(left(&out) && !r.is_stopped());
    }
}

#[test]
fn a_silent_primary_is_left_and_tries_come_further_apart() {
    let mut r = streaming();
    let mut out = Vec::new();
    for _ in 0..60 {
        out.extend(done(&mut r, Event::Time));
    }
    assert!(left(&out));
    let mut waits = Vec::new();
    for _ in 0..9 {
        done(&mut r, Event::Connected);
        let out = done(&mut r, Event::Disconnected);
        let [Command::Reconnect { after_millis }] = out[..] else {
            panic!("{out:?}")
        };
        waits.push(after_millis);
    }
    assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]);
    assert!(done(&mut r, Event::Disconnected).is_empty(), "it is away");
    done(&mut r, Event::Connected);
    say(&mut r, welcome(5, Start::Resume(p(9))));
    say(&mut r, batch(9, 12));
    let out = done(&mut r, Event::Disconnected);
    assert_eq!(out, [Command::Reconnect { after_millis: 100 }]);
}

#[test]
fn acknowledgements_follow_the_marks_and_the_time() {
    let mut r = streaming();
    say(&mut r, batch(9, 12));
    let ack = |at| {
        Command::Send(Message::Ack {
            term: 5,
            received: at,
            persisted: at,
            applied: at,
            visible: at,
            echo_micros: 12,
        })
    };
    assert_eq!(done(&mut r, Event::Moved(all_at(p(12)))), [ack(p(12))]);
    assert!(done(&mut r, Event::Moved(all_at(p(12)))).is_empty());
    assert_eq!(done(&mut r, Event::Time), [ack(p(12))]);
}

#[test]
fn where_nobody_waits_marks_are_acknowledged_with_the_next_word() {
    let mut r = streaming();
    say(&mut r, batch(9, 12));
    let acks = |out: &[Command]| {
        let is_ack = |c: &&Command| matches!(c, Command::Send(Message::Ack { .. }));
        out.iter().filter(is_ack).count()
    };
    assert!(say(&mut r, Message::Acks { at_once: false }).is_empty());
    assert!(!r.hurries());
    assert!(done(&mut r, Event::Moved(all_at(p(12)))).is_empty());
    let out = say(&mut r, Message::Acks { at_once: true });
    let says = |c: &Command| matches!(c, Command::Send(Message::Ack { persisted, .. }) if *persisted == p(12));
    assert!(
        out.len() == 1 && says(&out[0]),
        "what has moved meanwhile: {out:?}"
    );
    assert!(say(&mut r, Message::Acks { at_once: true }).is_empty());
    say(&mut r, Message::Acks { at_once: false });
    // One that takes over is waited for, whatever was said.
    done(&mut r, Event::Seal);
    assert!(r.hurries());
    say(&mut r, batch(12, 14));
    assert_eq!(acks(&done(&mut r, Event::Moved(all_at(p(14))))), 1);
    // So is one that has just connected: nothing is said of it yet.
    done(&mut r, Event::Cancel);
    assert!(!r.hurries());
    done(&mut r, Event::Disconnected);
    done(&mut r, Event::Connected);
    assert!(r.hurries());
}

#[test]
fn a_copy_arrives_in_order_whatever_the_network_does() {
    let mut me = identity(Position::ZERO);
    me.cluster = 0;
    let mut r = Receiver::new(me);
    done(&mut r, Event::Connected);
    let part = MAX_CHUNK as u64;
    let bytes = 5 * part + 100;
    let start = Start::Bootstrap {
        number: 3,
        bytes,
        start: p(40),
    };
    let out = say(&mut r, welcome(5, start));
    assert!(
        matches!(&out[0], Command::BeginBootstrap { number: 3, terms: t, .. } if *t == terms())
    );
    let asked = |out: &[Command]| -> Vec<u64> {
        let one = |c: &Command| match c {
            Command::Send(Message::Fetch { offset, .. }) => Some(*offset / part),
            _ => None,
        };
        out.iter().filter_map(one).collect()
    };
    assert_eq!(asked(&out), [0, 1, 2, 3]);
    let give = |r: &mut Receiver, i: u64| {
        let n = part.min(bytes - i * part);
        let message = Message::Checkpoint {
            offset: i * part,
            last: i == 5,
            bytes: vec![i as u8; n as usize],
        };
        say(r, message)
    };
    assert_eq!(asked(&give(&mut r, 0)), [4]);
    assert!(give(&mut r, 2).is_empty(), "1 is missing");
    assert!(give(&mut r, 0).is_empty(), "a double");
    let again: Vec<u64> = (0..5)
        .flat_map(|_| asked(&done(&mut r, Event::Time)))
        .collect();
    assert_eq!(again, [1]);
    let mut out = Vec::new();
    for i in 1..6 {
        out.extend(give(&mut r, i));
    }
    assert_eq!(asked(&out), [2, 3, 4, 5], "2 came too early");
    assert_eq!(out.last(), Some(&Command::FinishBootstrap));
    assert_eq!(r.progress(), None);
    for _ in 0..200 {
        assert!(done(&mut r, Event::Time).is_empty(), "recovery takes long");
    }
    let out = done(&mut r, Event::Bootstrapped { start: p(40) });
    assert_eq!(out, [Command::Send(Message::Resume { from: p(40) })]);
    assert_eq!(written(&say(&mut r, batch(40, 44))), [(p(44), true)]);
}

/// Each part takes as long as two or seven askings again.
#[test]
fn a_slow_link_is_not_filled_with_doubles() {
    for pace in [10, 35] {
        let mut me = identity(Position::ZERO);
        me.cluster = 0;
        let mut r = Receiver::new(me);
        done(&mut r, Event::Connected);
        const PARTS: u64 = 40;
        let bytes = PARTS * MAX_CHUNK as u64;
        let start = Start::Bootstrap {
            number: 3,
            bytes,
            start: p(40),
        };
        let mut link = std::collections::VecDeque::new();
        let mut asked = 0;
        let mut out = say(&mut r, welcome(5, start));
        for n in 1.. {
            for c in out.drain(..) {
                match c {
                    Command::Send(Message::Fetch { offset, bytes }) => {
                        asked += 1;
                        link.push_back((offset, bytes));
                    }
                    Command::FinishBootstrap => {
                        assert!(asked <= PARTS + 4, "{asked} parts were asked for");
                        link.clear();
                    }
                    Command::Store { .. } | Command::BeginBootstrap { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(link.len() <= 8, "{} are under way", link.len());
            out = done(&mut r, Event::Time);
            if n % pace == 0 {
                let Some((offset, n)) = link.pop_front() else {
                    break;
                };
                out.extend(say(
                    &mut r,
                    Message::Checkpoint {
                        offset,
                        last: offset + u64::from(n) == bytes,
                        bytes: vec![0; n as usize],
                    },
                ));
            }
        }
        assert_eq!(r.progress(), None, "all of it came");
    }
}

#[test]
fn a_copy_that_fails_begins_anew() {
    let bootstrap = |bytes| Start::Bootstrap {
        number: 3,
        bytes,
        start: p(40),
    };
    let mut r = streaming();
    done(&mut r, Event::Disconnected);
    done(&mut r, Event::Connected);
    say(&mut r, welcome(5, bootstrap(10)));
    assert_eq!(r.progress(), Some((0, 10)));
    let longer = Message::Checkpoint {
        offset: 0,
        last: true,
        bytes: vec![0; 11],
    };
    assert!(left(&say(&mut r, longer)));
    let out = done(&mut r, Event::Connected);
    assert!(
        matches!(&out[..], [Command::Send(Message::Hello { last, .. })] if *last == Position::ZERO),
        "nothing of it is here"
    );
    say(&mut r, welcome(5, bootstrap(1)));
    let whole = Message::Checkpoint {
        offset: 0,
        last: true,
        bytes: vec![0],
    };
    say(&mut r, whole);
    assert!(left(&done(&mut r, Event::BootstrapFailed)));
}

#[test]
fn a_copy_that_does_not_come_leaves_the_term_that_was_heard_of() {
    let mut r = streaming();
    done(&mut r, Event::Disconnected);
    done(&mut r, Event::Connected);
    let start = Start::Bootstrap {
        number: 3,
        bytes: 10,
        start: p(40),
    };
    let out = say(&mut r, welcome(7, start));
    assert!(!out.iter().any(|c| matches!(c, Command::SetTerms(_))));
    // What was here before is taken up again, and does not follow the older primary any more.
    let mut again = identity(p(9));
    again.heard = 7;
    let mut r = Receiver::new(again);
    done(&mut r, Event::Connected);
    assert!(left(&say(&mut r, welcome(5, Start::Resume(p(9))))));
    done(&mut r, Event::Connected);
    say(&mut r, welcome(7, Start::Resume(p(9))));
    assert!(r.is_streaming());
}

#[test]
fn a_hand_over_waits_until_everything_is_durable_here() {
    let mut r = streaming();
    assert_eq!(done(&mut r, Event::Seal), [Command::Send(Message::Seal)]);
    let sealed = Message::Sealed {
        term: 5,
        last: p(14),
    };
    let out = say(&mut r, sealed);
    assert_eq!(out, [Command::Send(Message::Resume { from: p(9) })]);
    say(&mut r, batch(9, 14));
    let mut half = all_at(p(14));
    half.persisted = p(12);
    let over = Command::HandedOver {
        term: 5,
        last: p(14),
    };
    assert!(!done(&mut r, Event::Moved(half)).contains(&over));
    assert!(done(&mut r, Event::Moved(all_at(p(14)))).contains(&over));
    // Who was told to forget it, or lost the connection since, takes nothing over.
    for forget in [Event::Cancel, Event::Disconnected] {
        let mut r = streaming();
        done(&mut r, Event::Moved(all_at(p(9))));
        done(&mut r, Event::Seal);
        done(&mut r, forget);
        let sealed = Message::Sealed {
            term: 5,
            last: p(9),
        };
        assert!(say(&mut r, sealed).is_empty());
    }
    // What was heard before the wish was given up does not answer the next wish.
    let mut r = streaming();
    done(&mut r, Event::Seal);
    let sealed = Message::Sealed {
        term: 5,
        last: p(9),
    };
    say(&mut r, sealed);
    done(&mut r, Event::Cancel);
    done(&mut r, Event::Seal);
    assert!(
        done(&mut r, Event::Time)
            .iter()
            .all(|c| !matches!(c, Command::HandedOver { .. }))
    );
    let out = done(&mut r, Event::Moved(all_at(p(9))));
    assert!(out.iter().all(|c| !matches!(c, Command::HandedOver { .. })));
    // Who did not ask takes nothing over.
    let mut r = streaming();
    done(&mut r, Event::Moved(all_at(p(9))));
    let sealed = Message::Sealed {
        term: 5,
        last: p(9),
    };
    assert!(say(&mut r, sealed).is_empty());
}
