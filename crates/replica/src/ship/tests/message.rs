//! Messages come back as they were written, and bytes that are none are refused.

use super::*;
use crate::lease::Ask;
use proptest::prelude::*;

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        (1u64..5).prop_map(|e| e << 24)
    ]
    .prop_map(Position::from_u64)
}

fn term() -> impl Strategy<Value = u64> {
    0..=MAX_TERM
}

fn terms() -> impl Strategy<Value = Vec<(u64, Position)>> {
    prop::collection::btree_map(term(), any::<u64>(), 0..6).prop_map(|m| {
        let mut starts: Vec<u64> = m.values().copied().collect();
        starts.sort_unstable();
        let starts = starts.into_iter().map(Position::from_u64);
        m.keys().copied().zip(starts).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let numbers = (term(), any::<u128>(), any::<i64>());
    (numbers, position(), position(), position()).prop_map(
        |((term, stream, sent_micros), a, b, published)| Step {
            term,
            stream,
            after: a.min(b),
            upto: a.max(b),
            published,
            sent_micros,
        },
    )
}

fn header() -> impl Strategy<Value = Option<wal::around::Header>> {
    let bytes = any::<u8>().prop_map(|b| [b; 128]);
    prop::option::of(bytes)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn tick(s: Step) -> Message {
    Message::Tick {
        term: s.term,
        stream: s.stream,
        after: s.after,
        upto: s.upto,
        published: s.published,
        sent_micros: s.sent_micros,
    }
}

fn batch(s: Step, group: Vec<u8>) -> Message {
    Message::Batch {
        term: s.term,
        stream: s.stream,
        after: s.after,
        upto: s.upto,
        published: s.published,
        sent_micros: s.sent_micros,
        group,
    }
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![
        position().prop_map(Start::Resume),
        (any::<u64>(), any::<u64>(), position()).prop_map(|(number, bytes, start)| {
            Start::Bootstrap {
                number,
                bytes,
                start,
            }
        }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        position().prop_map(|at| Refusal::Diverged { at }),
        (position(), position()).prop_map(|(ours, theirs)| Refusal::Ahead { ours, theirs }),
        (position(), ".{0,40}").prop_map(|(ours, why)| Refusal::Unproven { ours, why }),
        Just(Refusal::OtherCluster),
        Just(Refusal::OlderTerm),
        Just(Refusal::Sealed),
        ".{0,40}".prop_map(Refusal::Other),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let marks = (position(), position(), position(), position());
    prop_oneof![
        (
            any::<u16>(),
            any::<u128>(),
            "[a-z]{0,60}",
            terms(),
            position(),
            any::<u64>()
        )
            .prop_map(|(version, cluster, node, terms, last, ring)| {
                Message::Hello {
                    version,
                    cluster,
                    node,
                    terms,
                    last,
                    ring,
                }
            }),
        (any::<u128>(), term(), terms(), start()).prop_map(|(cluster, term, terms, start)| {
            Message::Welcome {
                cluster,
                term,
                terms,
                start,
            }
        }),
        (term(), refusal()).prop_map(|(term, reason)| Message::Refused { term, reason }),
        (any::<u64>(), any::<bool>(), bytes()).prop_map(|(offset, last, bytes)| {
            Message::Checkpoint {
                offset,
                last,
                bytes,
            }
        }),
        (step(), bytes()).prop_map(|(s, group)| batch(s, group)),
        step().prop_map(tick),
        (term(), position()).prop_map(|(term, last)| Message::Sealed { term, last }),
        (term(), marks, any::<i64>()).prop_map(
            |(term, (received, persisted, applied, visible), echo_micros)| Message::Ack {
                term,
                received,
                persisted,
                applied,
                visible,
                echo_micros
            }
        ),
        position().prop_map(|from| Message::Resume { from }),
        any::<bool>().prop_map(|at_once| Message::Acks { at_once }),
        Just(Message::Lease(Word::Offer)),
        Just(Message::Lease(Word::Wanted)),
        any::<(u64, u64)>()
            .prop_map(|(life, number)| Message::Lease(Word::GivenBack(Ask { life, number }))),
        (any::<u64>(), any::<u64>())
            .prop_map(|(life, number)| Message::Lease(Word::Ask(Ask { life, number }))),
        (term(), any::<u64>(), position()).prop_map(|(term, number, first)| {
            Message::Lease(Word::Granted {
                term,
                number,
                first,
            })
        }),
        (any::<u64>(), any::<u32>()).prop_map(|(offset, bytes)| Message::Fetch { offset, bytes }),
        Just(Message::Seal),
        position().prop_map(|after| Message::Show { after }),
        (header(), header(), header(), header()).prop_map(|(at, segment, next, checkpoint)| {
            Message::Shown(Box::new(Around {
                at,
                segment,
                next,
                checkpoint,
            }))
        }),
    ]
}

proptest! {
    #[test]
    fn every_message_comes_back(m in message()) {
        prop_assert_eq!(Message::decode(&m.to_bytes()), Ok(m));
    }

    #[test]
    fn cut_short_or_longer_it_is_refused_or_says_what_it_says(m in message(), cut in any::<prop::sample::Index>()) {
        let bytes = m.to_bytes();
        let shorter = &bytes[..cut.index(bytes.len())];
        if let Ok(other) = Message::decode(shorter) {
            // Only the free part at the end can be shorter, and then the bytes are that message's own.
            prop_assert_ne!(&other, &m);
            prop_assert_eq!(other.to_bytes(), shorter);
        }
    }

    /// Whatever is accepted is written again as it was read: no byte is ignored.
    #[test]
    fn random_bytes_never_panic(mut bytes in bytes(), kind in 0u8..24, version in prop_oneof![Just(VERSION), any::<u8>()]) {
        let _ = Message::decode(&bytes);
        bytes.splice(0..bytes.len().min(2), [kind, version]);
        if let Ok(m) = Message::decode(&bytes) {
            prop_assert_eq!(m.to_bytes(), bytes);
        }
    }

    #[test]
    fn flipped_bits_never_panic(m in message(), flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4)) {
        let mut bytes = m.to_bytes();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Ok(other) = Message::decode(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes);
        }
    }
}

#[test]
fn impossible_messages_are_refused() {
    let hello = Message::Hello {
        version: 1,
        cluster: 7,
        node: "r1".into(),
        terms: vec![(1, Position::ZERO), (2, Position::new(3, 4))],
        last: Position::new(5, 0),
        ring: 1 << 20,
    };
    let good = hello.to_bytes();
    assert!(Message::decode(&good).is_ok());
    let terms_at = 2 + 2 + 16 + 8 + 8;
    let mut huge = good.clone();
    huge[terms_at..terms_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Message::decode(&huge).is_err(), "a count beyond the bytes");
    let mut falling = good.clone();
    falling[terms_at + 4] = 9;
    assert!(Message::decode(&falling).is_err(), "terms that fall");
    let mut other = good.clone();
    other[1] = VERSION + 1;
    assert!(Message::decode(&other).is_err(), "another version");
    assert!(Message::decode(&[]).is_err());
    assert!(Message::decode(&[SEAL, VERSION, 0]).is_err(), "a byte more");
    let long = Message::Checkpoint {
        offset: 0,
        last: true,
        bytes: vec![0; MAX_CHUNK + 1],
    };
    assert!(Message::decode(&long.to_bytes()).is_err());
}

#[test]
fn a_term_that_cannot_be_is_no_message() {
    let sealed = |term| {
        let last = Position::ZERO;
        Message::decode(&Message::Sealed { term, last }.to_bytes())
    };
    assert!(sealed(MAX_TERM).is_ok());
    for term in [MAX_TERM + 1, u64::MAX] {
        assert!(sealed(term).is_err());
        let hello = Message::Hello {
            version: 3,
            cluster: 1,
            node: "a".into(),
            terms: vec![(1, Position::ZERO), (term, Position::ZERO)],
            last: Position::ZERO,
            ring: 1,
        };
        assert!(Message::decode(&hello.to_bytes()).is_err());
        let ack = Message::Ack {
            term,
            received: Position::ZERO,
            persisted: Position::ZERO,
            applied: Position::ZERO,
            visible: Position::ZERO,
            echo_micros: 0,
        };
        assert!(Message::decode(&ack.to_bytes()).is_err());
    }
}
