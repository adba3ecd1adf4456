//! `ship`: what primary and replica say to each other.

use base::Position;
use replica::lease::{Ask, Word};
use replica::ship::{Heard, Message, Refusal, Start};

/// Accepted: exactly one message, which is written again as the same bytes.
pub fn run(bytes: &[u8]) -> bool {
    let message = match Heard::decode(bytes) {
        Ok(Heard::Message(message)) => message,
        Ok(Heard::Medium(word)) => {
            let mut again = Vec::new();
            word.encode(&mut again);
            assert_eq!(again, bytes, "{word:?} is written as it was read");
            return true;
        }
        Err(_) => return false,
    };
    assert_eq!(
        message.to_bytes(),
        bytes,
        "{message:?} is written as it was read"
    );
    if let Some(step) = message.step() {
        assert!(step.after <= step.upto, "{step:?}");
    }
    if let Message::Hello { terms, .. } | Message::Welcome { terms, .. } = &message {
        assert!(terms.len() <= bytes.len(), "no more terms than bytes");
    }
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    let p = Position::from_u64;
    let (term, stream, terms) = (3, 7 << 64 | 5, vec![(1, p(0)), (3, p(1 << 24))]);
    let (after, upto, published, sent_micros) = (p(1 << 24), p(1 << 25), p(1 << 24), 1);
    let bootstrap = Start::Bootstrap {
        number: 2,
        bytes: 4096,
        start: p(9),
    };
    let welcome = |start| Message::Welcome {
        cluster: stream,
        term,
        terms: terms.clone(),
        start,
    };
    let refused = |reason| Message::Refused { term, reason };
    [
        Message::Hello {
            version: 1,
            cluster: stream,
            node: "replica".into(),
            terms: terms.clone(),
            last: p(77),
            ring: 1 << 20,
        },
        welcome(Start::Resume(p(77))),
        welcome(bootstrap),
        refused(Refusal::Diverged { at: p(5) }),
        refused(Refusal::Ahead {
            ours: p(5),
            theirs: p(9),
        }),
        refused(Refusal::Sealed),
        refused(Refusal::Other("no".into())),
        Message::Checkpoint {
            offset: 0,
            last: true,
            bytes: vec![1, 2, 3],
        },
        Message::Batch {
            term,
            stream,
            after,
            upto,
            published,
            sent_micros,
            group: b"a group".to_vec(),
        },
        Message::Tick {
            term,
            stream,
            after,
            upto,
            published,
            sent_micros,
        },
        Message::Sealed { term, last: p(9) },
        Message::Ack {
            term,
            received: p(4),
            persisted: p(3),
            applied: p(2),
            visible: p(1),
            echo_micros: -1,
        },
        Message::Resume { from: p(8) },
        Message::Fetch {
            offset: 9,
            bytes: 10,
        },
        Message::Seal,
        Message::Show { after: p(9) },
        Message::Shown(Box::new(wal::Around {
            at: Some([1; 128]),
            next: Some([2; 128]),
            ..wal::Around::default()
        })),
        Message::Acks { at_once: true },
        Message::Lease(Word::Offer),
        Message::Lease(Word::Wanted),
        Message::Lease(Word::GivenBack(Ask { life: 1, number: 2 })),
        Message::Lease(Word::Ask(Ask { life: 1, number: 2 })),
        Message::Lease(Word::Granted {
            term,
            number: 2,
            first: p(9),
        }),
    ]
    .iter()
    .map(Message::to_bytes)
    .collect()
}
