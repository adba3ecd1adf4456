//! `peers`: a sender that hears a hostile follower, and a receiver that hears a hostile primary, whatever their terms are.
//!
//! ```text
//! input:  member u8 | own terms u8 | term heard of u8 | step u8, then its message: a length u8 and the bytes of a `Message`, repeated
//! ```
//! Whatever is said: a stranger brings about no report, no hand-over and no deposition. A node is deposed by a greater term only, and by none above
//! `MAX_TERM`. What is reported was sent. A receiver never goes back to an older term, and writes what is of its own term and stream.

use base::{MAX_TERM, Position};
use replica::ship::receiver::{self, Receiver};
use replica::ship::sender::{Command, Event};
use replica::ship::{Acked, Facts, Identity, Message, Peer, Sender, Start, VERSION};

const CLUSTER: u128 = 7;

fn at(n: u64) -> Position {
    Position::from_u64(n << 24)
}

/// A history that a byte chooses: its newest term may be the greatest that there is.
fn history(choice: u8) -> Vec<(u64, Position)> {
    let newest = match choice & 3 {
        0 => 1,
        1 => 5,
        2 => MAX_TERM - 1,
        _ => MAX_TERM,
    };
    match newest {
        1 => vec![(1, Position::ZERO)],
        t => vec![(1, Position::ZERO), (t, at(u64::from(choice >> 4)))],
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next message; rubbish ends the input, as it ends a connection.
    fn message(&mut self) -> Option<Message> {
        let len = usize::from(self.byte()?);
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Message::decode(bytes).ok()
    }
}

/// Accepted: at least one message was one.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let (Some(member), Some(own), Some(heard)) = (input.byte(), input.byte(), input.byte()) else {
        return false;
    };
    let terms = history(own);
    let mut said = Vec::new();
    while let Some(step) = input.byte() {
        let Some(m) = input.message() else { break };
        said.push((step, m));
    }
    sender(member & 1 == 1, heard & 1 == 1, &terms, &said);
    receiver(u64::from(heard), &terms, &said);
    !said.is_empty()
}

fn sender(member: bool, deposed: bool, terms: &[(u64, Position)], said: &[(u8, Message)]) {
    let term = terms.last().expect("never empty").0;
    let facts = Facts {
        cluster: CLUSTER,
        term,
        terms: terms.to_vec(),
        last: at(9),
        reaches_back_to: Position::ZERO,
        lives: Vec::new(),
        deposed,
    };
    let mut s = Sender::new(match member {
        true => Peer::Member,
        false => Peer::Stranger,
    });
    let (mut out, mut most) = (Vec::new(), Position::ZERO);
    for (n, (step, m)) in said.iter().enumerate() {
        out.clear();
        match n {
            0 => s.greet(m.clone(), facts.clone(), &mut out),
            _ => s.handle(Event::Message(m.clone()), 77, &mut out),
        }
        // What the driver answers meanwhile.
        let answer = match step % 4 {
            0 => Event::Time,
            1 => Event::CheckpointOpened {
                number: 1,
                bytes: 100,
                start: at(3),
            },
            2 => Event::LogRead {
                from: s.sent(),
                groups: Vec::new(),
                upto: at(9).max(s.sent()),
            },
            _ => Event::Published(at(u64::from(step >> 2))),
        };
        most = most.max(s.sent());
        s.handle(answer, 78, &mut out);
        most = most.max(s.sent());
        for c in &out {
            match c {
                Command::Report { acked, .. } => {
                    assert!(member, "a stranger is reported");
                    assert!(acked.received <= most, "{acked:?}, sent {most}");
                    assert!(acked.persisted.max(acked.applied) <= acked.received);
                    assert!(acked.visible <= acked.applied);
                }
                // Nothing that it shows is of this log.
                Command::Lost { .. } => panic!("a bare word is believed"),
                Command::Seal => assert!(member, "a stranger takes over"),
                Command::HeardOfTerm(t) => {
                    assert!(member, "a stranger deposes");
                    assert!(*t > term && *t <= MAX_TERM);
                }
                Command::HintOfTerm(t) => assert!(!member && *t > term),
                _ => {}
            }
        }
    }
}

fn receiver(heard: u64, terms: &[(u64, Position)], said: &[(u8, Message)]) {
    let term = terms.last().expect("never empty").0;
    let mut r = Receiver::new(Identity {
        cluster: CLUSTER,
        node: "a".into(),
        terms: terms.to_vec(),
        heard: heard.max(term),
        last: at(9),
        ring: 1 << 20,
    });
    let (mut out, mut newest) = (Vec::new(), term);
    r.handle(receiver::Event::Connected, &mut out);
    for (step, m) in said {
        out.clear();
        r.handle(receiver::Event::Message(m.clone()), &mut out);
        let marks = Acked {
            received: at(9),
            persisted: at(9),
            applied: at(9),
            visible: at(9),
        };
        r.handle(
            match step % 4 {
                0 => receiver::Event::Time,
                1 => receiver::Event::Moved(marks),
                2 => receiver::Event::Seal,
                _ => receiver::Event::Bootstrapped { start: at(3) },
            },
            &mut out,
        );
        for c in &out {
            if let receiver::Command::Write { message, .. } = c {
                let step = message.step().expect("a step");
                assert_eq!((step.term, step.stream), (r.term(), CLUSTER));
            }
        }
        assert!(r.term() >= newest, "an older term is followed");
        newest = r.term();
        if step % 5 == 4 {
            r.handle(receiver::Event::Disconnected, &mut out);
            r.handle(receiver::Event::Connected, &mut out);
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let hello = |terms: Vec<(u64, Position)>, last| Message::Hello {
        version: u16::from(VERSION),
        cluster: CLUSTER,
        node: "a".into(),
        terms,
        last,
        ring: 2000,
    };
    let ack = |term, p| Message::Ack {
        term,
        received: p,
        persisted: p,
        applied: p,
        visible: p,
        echo_micros: 0,
    };
    let step = |term, after, upto| Message::Tick {
        term,
        stream: CLUSTER,
        after,
        upto,
        published: upto,
        sent_micros: 0,
    };
    let welcome = |term, terms: Vec<(u64, Position)>, start| Message::Welcome {
        cluster: CLUSTER,
        term,
        terms,
        start,
    };
    let five = history(0x11);
    let mut all = Vec::new();
    for member in [0, 1] {
        for own in [0x10, 0x11, 0x12, 0x13] {
            let terms = history(own);
            let term = terms.last().expect("never empty").0;
            let talks = [
                vec![
                    hello(terms.clone(), at(8)),
                    ack(term, at(9)),
                    Message::Seal,
                    ack((term + 1).min(MAX_TERM), at(9)),
                ],
                vec![hello(five.clone(), at(9)), ack(5, at(9))],
                vec![
                    welcome(term, terms.clone(), Start::Resume(at(9))),
                    step(term, at(9), at(10)),
                    Message::Sealed { term, last: at(10) },
                    step(term.saturating_sub(1), at(10), at(11)),
                ],
                vec![
                    welcome(
                        term,
                        terms.clone(),
                        Start::Bootstrap {
                            number: 1,
                            bytes: 4,
                            start: at(3),
                        },
                    ),
                    Message::Checkpoint {
                        offset: 0,
                        last: true,
                        bytes: vec![0; 4],
                    },
                ],
            ];
            for talk in talks {
                let mut bytes = vec![member, own, 1];
                for (n, m) in talk.iter().enumerate() {
                    let m = m.to_bytes();
                    bytes.extend([n as u8, m.len() as u8]);
                    bytes.extend(m);
                }
                all.push(bytes);
            }
        }
    }
    all
}
