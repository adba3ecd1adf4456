//! `proof`: messages of the exchange by which nodes prove that they are of one cluster, changed on their way.

use replica::proof::{Answerer, Asker, BYTES, Claim, Purpose, Secret};

fn claim(node: &str, term: u64) -> Claim {
    Claim {
        node: node.into(),
        cluster: 7,
        term,
    }
}

fn asker() -> Asker {
    let secret = Secret::new([3; BYTES]);
    Asker::new(secret, Purpose::Terms, &claim("b", 5), &[1; BYTES])
}

fn answerer(first: &[u8]) -> Option<(Answerer, Vec<u8>)> {
    let (secret, own) = (Secret::new([3; BYTES]), claim("a", 9));
    Answerer::asked(secret, Purpose::Terms, &own, &[2; BYTES], first).ok()
}

/// The three messages that another end sends to either, each behind its length. Accepted: every end believes, and then nothing was changed.
pub fn run(bytes: &[u8]) -> bool {
    let Some((first, rest)) = part(bytes) else {
        return false;
    };
    let Some((second, proof)) = part(rest) else {
        return false;
    };
    let here = asker();
    let answered = answerer(first).and_then(|(a, _)| a.proven(proof).ok());
    let mut there = asker();
    let challenged = there.challenged(second);
    if let Some((who, answer)) = answered {
        assert_eq!(first, here.introduction(), "another introduction is proven");
        assert_eq!(who, claim("b", 5));
        let right = answerer(first).is_some_and(|(_, own)| own == second);
        let believed = challenged.is_ok() && there.answered(&answer).is_ok();
        assert_eq!(right, believed, "the answer is to what was asked");
        return right;
    }
    // A proof of the one end is none of the other.
    assert!(challenged.is_err() || there.answered(proof).is_err());
    false
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked((*len).into())
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut b = asker();
    let first = b.introduction().to_vec();
    let (_, second) = answerer(&first).expect("well-formed");
    let proof = b.challenged(&second).expect("well-formed");
    let mut all = Vec::new();
    for part in [&first, &second] {
        all.push(part.len() as u8);
        all.extend_from_slice(part);
    }
    all.extend_from_slice(&proof);
    // A byte behind what is accepted is one too many: the whole is one seed.
    vec![all]
}
