//! How two nodes prove to each other that they are of one cluster: challenge and response over the cluster's secret.
//!
//! ```text
//! asker                                                          answerer
//!   1  introduction: purpose, cluster, term, nonce, name  ──▶
//!                      ◀──  2  introduction: the same of its own
//!   3  HMAC-SHA-256(secret, "asks" | 1 | 2)               ──▶    believes what stands in 1
//!      believes what stands in 2        ◀──  4  HMAC-SHA-256(secret, "answers" | 1 | 2)
//!
//! introduction:  version u8 | purpose u8 | cluster u128 | term u64 | nonce [u8; 32] | name       (little-endian)
//! ```
//! The secret never travels. A proof is good for one connection: both nonces, both names, both clusters and what the connection is for are
//! in it. The two directions have labels of their own, so that a proof cannot be sent back to the node that made it.
//!
//! Each introduction says the newest term that its node knows of. It counts after the proof and not before. So the same exchange
//! tells a node of a newer term, and asks for one.
//!
//! A claim from outside, such as a client's token, is a hint: the primary then asks the nodes that it knows, and [`Rounds`] says when.
//!
//! Pure: the caller brings nonces and time, and carries the messages. Left out on purpose: encryption, and a guard against a middleman that
//! passes a whole connection on. Both need TLS between nodes.

use base::MAX_TERM;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt;

/// Version of the exchange.
const VERSION: u8 = 1;
/// Bytes of a nonce, a secret and a proof.
pub const BYTES: usize = 32;
/// Bytes of an introduction before the name.
const HEAD: usize = 2 + 16 + 8 + BYTES;
/// Greatest name of a node.
const MAX_NAME: usize = 255;

/// Random bytes that are used once.
pub type Nonce = [u8; BYTES];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    let two = |d: &[u8]| Some((digit(d[0])? * 16 + digit(d[1])?) as u8);
    let pairs = digits.as_bytes().chunks_exact(2);
    match pairs.remainder().is_empty() {
        true => pairs.map(two).collect(),
        false => None,
    }
}

/// What the nodes of a cluster know, and its proxies.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl Secret {
    /// Of random bytes.
    pub fn new(bytes: [u8; BYTES]) -> Secret {
        Secret(bytes)
    }

    /// Reads what [`Secret::text`] writes: 64 hexadecimal digits and white space around them.
    pub fn parse(text: &str) -> Option<Secret> {
        let bytes = unhex(text.trim())?;
        bytes.try_into().ok().map(Secret)
    }

    /// As it stands in a file: one line.
    pub fn text(&self) -> String {
        hex(&self.0) + "\n"
    }

    fn mac(&self, label: &str, first: &[u8], second: &[u8]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac = mac.expect("HMAC takes keys of any length");
        for part in [label.as_bytes(), first, second] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a connection between nodes is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// A replica reads the log, the region, or has snapshots held.
    Replica = 1,
    /// A replica has statements of its sessions run at the primary.
    Sessions = 2,
    /// Two nodes tell each other the newest term that they know of.
    Terms = 3,
    /// Members of a cluster that runs itself agree with each other.
    Control = 4,
    /// A proxy asks how a node is, or opens a client's session there.
    Proxy = 5,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub node: String,
    /// 0: it has no history yet.
    pub cluster: u128,
    /// The newest term that it knows of; 0: it cannot tell.
    pub term: u64,
}

/// Why the other end is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    Malformed(&'static str),
    /// It speaks another version of the exchange.
    OtherVersion(u8),
    OtherCluster,
    /// It does not have this cluster's secret.
    WrongSecret,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Malformed(why) => write!(f, "malformed proof of a node: {why}"),
            Denied::OtherVersion(v) => write!(
                f,
                "the node proves itself in version {v}, this one in version {VERSION}"
            ),
            Denied::OtherCluster => f.write_str("the node belongs to another cluster"),
            Denied::WrongSecret => f.write_str("the node does not have this cluster's secret"),
        }
    }
}

fn introduce(purpose: Purpose, claim: &Claim, nonce: &Nonce) -> Vec<u8> {
    assert!(claim.node.len() <= MAX_NAME, "a name of at most 255 bytes");
    let mut out = vec![VERSION, purpose as u8];
    out.extend_from_slice(&claim.cluster.to_le_bytes());
    out.extend_from_slice(&claim.term.to_le_bytes());
    out.extend_from_slice(nonce);
    out.extend_from_slice(claim.node.as_bytes());
    out
}

fn read(purpose: Purpose, bytes: &[u8]) -> Result<Claim, Denied> {
    match bytes.first() {
        None => return Err(Denied::Malformed("it is empty")),
        Some(&VERSION) => {}
        Some(&other) => return Err(Denied::OtherVersion(other)),
    }
    if !(HEAD..=HEAD + MAX_NAME).contains(&bytes.len()) {
        return Err(Denied::Malformed("an impossible length"));
    }
    if bytes[1] != purpose as u8 {
        return Err(Denied::Malformed("it is for another purpose"));
    }
    let number = |from: usize, n: usize| {
        let bytes = bytes[from..from + n].iter().rev();
        bytes.fold(0u128, |all, b| all << 8 | u128::from(*b))
    };
    let node = String::from_utf8(bytes[HEAD..].to_vec());
    let claim = Claim {
        node: node.map_err(|_| Denied::Malformed("a name is not UTF-8"))?,
        cluster: number(2, 16),
        term: number(18, 8) as u64,
    };
    match claim.term > MAX_TERM {
        true => Err(Denied::Malformed("a term is greater than any can be")),
        false => Ok(claim),
    }
}

/// Empty nodes go with any cluster.
fn agree(here: u128, there: u128) -> Result<(), Denied> {
    match here == there || here == 0 || there == 0 {
        true => Ok(()),
        false => Err(Denied::OtherCluster),
    }
}

/// The label of what a node says of itself when it is asked how far it is.
const STANDS: &str = "canon: a node says how far it is";

impl Secret {
    /// The proof that a node of the cluster has said this to what asked with this nonce.
    pub fn vouch(&self, nonce: &[u8], said: &[u8]) -> [u8; BYTES] {
        self.mac(STANDS, nonce, said).finalize().into_bytes().into()
    }

    /// Whether it is one; in constant time.
    pub fn is_vouched(&self, nonce: &[u8], said: &[u8], proof: &[u8]) -> bool {
        check(self.mac(STANDS, nonce, said), proof).is_ok()
    }
}

/// The label of what a proxy says of a login that it passes on.
const RELAYS: &str = "canon: a proxy passes a login on";

/// A login that a proxy passes on goes over two connections, and each can be bound to a certificate: the client's to that of the proxy, the proxy's to that
/// of the node. The bindings are those of RFC 5929; none: the connection is plain, or its certificate has no binding.
impl Secret {
    /// What the proxy says to the node: the binding that the client sees, and a proof for this node alone.
    pub fn relay(&self, node: Option<&[u8]>, client: Option<&[u8]>) -> String {
        let client = client.unwrap_or_default();
        let mac = self.mac(RELAYS, node.unwrap_or_default(), client);
        format!("{}:{}", hex(client), hex(&mac.finalize().into_bytes()))
    }

    /// What the node takes from that: the binding that the client sees. The proof is of another secret, or for a node of another
    /// certificate: `WrongSecret`.
    pub fn relayed(&self, node: Option<&[u8]>, said: &str) -> Result<Option<Vec<u8>>, Denied> {
        let parts = said.split_once(':');
        let read = parts.and_then(|(client, proof)| Some((unhex(client)?, unhex(proof)?)));
        let malformed = Denied::Malformed("a login that is passed on says no binding");
        let (client, proof) = read.ok_or(malformed)?;
        check(self.mac(RELAYS, node.unwrap_or_default(), &client), &proof)?;
        Ok(Some(client).filter(|c| !c.is_empty()))
    }
}

const ASKS: &str = "canon: a node asks";
const ANSWERS: &str = "canon: a node answers";

/// Whether the proof is right; in constant time.
fn check(mac: Hmac<Sha256>, proof: &[u8]) -> Result<(), Denied> {
    mac.verify_slice(proof).map_err(|_| Denied::WrongSecret)
}

/// The end that connects.
#[derive(Debug)]
pub struct Asker {
    secret: Secret,
    purpose: Purpose,
    cluster: u128,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Asker {
    pub fn new(secret: Secret, purpose: Purpose, claim: &Claim, nonce: &Nonce) -> Asker {
        Asker {
            secret,
            purpose,
            cluster: claim.cluster,
            first: introduce(purpose, claim, nonce),
            second: Vec::new(),
        }
    }

    /// Message 1.
    pub fn introduction(&self) -> &[u8] {
        &self.first
    }

    /// Takes message 2, gives message 3.
    pub fn challenged(&mut self, second: &[u8]) -> Result<Vec<u8>, Denied> {
        agree(self.cluster, read(self.purpose, second)?.cluster)?;
        self.second = second.to_vec();
        let mac = self.secret.mac(ASKS, &self.first, second);
        Ok(mac.finalize().into_bytes().to_vec())
    }

    /// Takes message 4: what the other end says is true.
    pub fn answered(&self, proof: &[u8]) -> Result<Claim, Denied> {
        let claim = read(self.purpose, &self.second)?;
        let mac = self.secret.mac(ANSWERS, &self.first, &self.second);
        check(mac, proof).map(|()| claim)
    }
}

/// The end that was connected to.
#[derive(Debug)]
pub struct Answerer {
    secret: Secret,
    claim: Claim,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Answerer {
    /// Takes message 1, gives message 2.
    pub fn asked(
        secret: Secret,
        purpose: Purpose,
        own: &Claim,
        nonce: &Nonce,
        first: &[u8],
    ) -> Result<(Answerer, Vec<u8>), Denied> {
        let claim = read(purpose, first)?;
        agree(own.cluster, claim.cluster)?;
        let second = introduce(purpose, own, nonce);
        let answerer = Answerer {
            secret,
            claim,
            first: first.to_vec(),
            second: second.clone(),
        };
        Ok((answerer, second))
    }

    /// Takes message 3: what the other end says is true. Gives message 4.
    pub fn proven(self, proof: &[u8]) -> Result<(Claim, Vec<u8>), Denied> {
        let mac = |label| self.secret.mac(label, &self.first, &self.second);
        check(mac(ASKS), proof)?;
        let answer = mac(ANSWERS).finalize().into_bytes().to_vec();
        Ok((self.claim, answer))
    }
}

/// When the nodes that a node knows are told of its term, and asked for theirs.
///
/// A node is told until it has answered that it knows of this term, or of a newer one: at first after [`Rounds::LEAST`], then ever later, up to
/// [`Rounds::MOST`]. A hint has all of them asked at once, but not within [`Rounds::LEAST`] of the last time.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// By address: the newest term that the node has proven to know, when it is due next, and the pause behind that; milliseconds.
    nodes: BTreeMap<String, Told>,
    hinted: bool,
    /// When a hint was followed last.
    asked: Option<u64>,
}

#[derive(Clone, Debug)]
struct Told {
    knows: u64,
    due: u64,
    pause: u64,
}

impl Rounds {
    /// Milliseconds between two times that a node is told, at least and at most.
    pub const LEAST: u64 = 1_000;
    pub const MOST: u64 = 30_000;
    /// Nodes that are kept.
    pub const NODES: usize = 64;

    /// There is a node at this address. Whether that is news.
    pub fn know(&mut self, address: &str) -> bool {
        if self.nodes.contains_key(address) || self.nodes.len() >= Rounds::NODES {
            return false;
        }
        let told = Told {
            knows: 0,
            due: 0,
            pause: Rounds::LEAST,
        };
        self.nodes.insert(address.to_owned(), told);
        true
    }

    /// All of them.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Something that proves nothing speaks of a newer term.
    pub fn hint(&mut self) {
        self.hinted = true;
    }

    /// The node at this address has proven that it knows of this term.
    pub fn answered(&mut self, address: &str, term: u64) {
        if let Some(n) = self.nodes.get_mut(address) {
            n.knows = n.knows.max(term);
            n.pause = Rounds::LEAST;
        }
    }

    /// Which nodes are to be told and asked now by one that knows of `term`. `leads`: it is of this term's primary that they have to hear.
    pub fn due(&mut self, now: u64, term: u64, leads: bool) -> Vec<String> {
        let rested = self.asked.is_none_or(|at| now >= at + Rounds::LEAST);
        let all = self.hinted && rested;
        if all {
            (self.hinted, self.asked) = (false, Some(now));
        }
        let mut due = Vec::new();
        for (address, n) in &mut self.nodes {
            let untold = leads && n.knows < term && n.due <= now;
            if untold || all {
                n.due = now + n.pause;
                n.pause = (2 * n.pause).min(Rounds::MOST);
                due.push(address.clone());
            }
        }
        due
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn secret(n: u8) -> Secret {
        Secret::new([n; BYTES])
    }

    fn claim(node: &str, term: u64) -> Claim {
        Claim {
            node: node.into(),
            cluster: 7,
            term,
        }
    }

    fn asker(n: u8, purpose: Purpose) -> Asker {
        Asker::new(secret(n), purpose, &claim("b", 5), &[1; BYTES])
    }

    fn answerer(first: &[u8]) -> Result<(Answerer, Vec<u8>), Denied> {
        let own = claim("a", 9);
        Answerer::asked(secret(1), Purpose::Replica, &own, &[2; BYTES], first)
    }

    #[test]
    fn two_nodes_of_one_secret_believe_each_other() {
        let mut b = asker(1, Purpose::Replica);
        let (a, second) = answerer(b.introduction()).expect("well-formed");
        let proof = b.challenged(&second).expect("well-formed");
        let (who, answer) = a.proven(&proof).expect("proven");
        assert_eq!(who, claim("b", 5));
        assert_eq!(b.answered(&answer), Ok(claim("a", 9)));
    }

    #[test]
    fn another_secret_proves_nothing_in_either_direction() {
        let mut b = asker(2, Purpose::Replica);
        let (a, second) = answerer(b.introduction()).expect("well-formed");
        let proof = b.challenged(&second).expect("well-formed");
        assert_eq!(a.proven(&proof).err(), Some(Denied::WrongSecret));
        // An impostor that answers what it likes.
        for made_up in [&proof[..], &[0; BYTES], b"", &[0; 64]] {
            assert_eq!(b.answered(made_up).err(), Some(Denied::WrongSecret));
        }
    }

    #[test]
    fn a_login_is_passed_on_to_one_node_and_with_one_binding() {
        let (node, client) = (Some(&b"node"[..]), Some(&b"proxy"[..]));
        let said = secret(1).relay(node, client);
        let taken = |n: u8, node: Option<&[u8]>| secret(n).relayed(node, &said);
        assert_eq!(taken(1, node), Ok(client.map(<[u8]>::to_vec)));
        assert_eq!(taken(2, node), Err(Denied::WrongSecret));
        assert_eq!(taken(1, Some(b"other")), Err(Denied::WrongSecret));
        assert_eq!(taken(1, None), Err(Denied::WrongSecret));
        let (_, proof) = said.split_once(':').expect("two parts");
        let other = format!("{}:{proof}", hex(b"other"));
        let other = secret(1).relayed(node, &other);
        assert_eq!(other, Err(Denied::WrongSecret));
        let plain = secret(1).relay(node, None);
        assert_eq!(secret(1).relayed(node, &plain), Ok(None));
        for bad in ["on", "", ":", "0:0", "zz:00", proof] {
            assert!(secret(1).relayed(node, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_byte_of_what_was_said_is_under_the_proof() {
        let b = asker(1, Purpose::Replica);
        for at in 0..b.introduction().len() {
            let mut first = b.introduction().to_vec();
            first[at] ^= 1;
            let Ok((a, second)) = answerer(&first) else {
                continue;
            };
            let proof = asker(1, Purpose::Replica).challenged(&second);
            let proof = proof.expect("well-formed");
            assert_eq!(a.proven(&proof).err(), Some(Denied::WrongSecret), "{at}");
        }
        let (_, second) = answerer(b.introduction()).expect("well-formed");
        for at in 0..second.len() {
            let (a, second) = answerer(b.introduction()).expect("well-formed");
            let mut changed = second;
            changed[at] ^= 1;
            let Ok(proof) = asker(1, Purpose::Replica).challenged(&changed) else {
                continue;
            };
            assert_eq!(a.proven(&proof).err(), Some(Denied::WrongSecret), "{at}");
        }
    }

    #[test]
    fn a_proof_is_for_one_connection_and_one_direction() {
        let mut b = asker(1, Purpose::Replica);
        let (a, second) = answerer(b.introduction()).expect("well-formed");
        let proof = b.challenged(&second).expect("well-formed");
        // Said again to a node that has drawn another nonce.
        let own = claim("a", 9);
        let other = Answerer::asked(
            secret(1),
            Purpose::Replica,
            &own,
            &[3; BYTES],
            b.introduction(),
        );
        let (other, _) = other.expect("well-formed");
        assert_eq!(other.proven(&proof).err(), Some(Denied::WrongSecret));
        // Sent back to the node that made it.
        assert_eq!(b.answered(&proof).err(), Some(Denied::WrongSecret));
        assert!(a.proven(&proof).is_ok());
        let sessions = asker(1, Purpose::Sessions);
        let refused = answerer(sessions.introduction()).err();
        assert!(matches!(refused, Some(Denied::Malformed(_))), "{refused:?}");
    }

    #[test]
    fn other_clusters_impossible_terms_and_rubbish_are_refused() {
        let of = |cluster, term| {
            let c = Claim {
                cluster,
                ..claim("b", term)
            };
            let b = Asker::new(secret(1), Purpose::Replica, &c, &[1; BYTES]);
            answerer(b.introduction()).err()
        };
        assert_eq!(of(8, 1), Some(Denied::OtherCluster));
        assert_eq!((of(0, 1), of(7, MAX_TERM)), (None, None));
        for term in [MAX_TERM + 1, u64::MAX] {
            assert!(matches!(of(7, term), Some(Denied::Malformed(_))), "{term}");
        }
        let b = asker(1, Purpose::Replica);
        let whole = b.introduction();
        for cut in 0..HEAD {
            assert!(answerer(&whole[..cut]).is_err(), "{cut}");
        }
        let long = [whole, &[b'x'; 300]].concat();
        assert!(answerer(&long).is_err());
        let bad = [whole, &[0xff]].concat();
        assert!(answerer(&bad).is_err());
        let other = [&[2], &whole[1..]].concat();
        assert_eq!(answerer(&other).err(), Some(Denied::OtherVersion(2)));
    }

    #[test]
    fn secrets_are_read_as_they_are_written_and_never_shown() {
        let s = Secret::new(std::array::from_fn(|n| n as u8 * 7));
        assert_eq!(Secret::parse(&s.text()), Some(s.clone()));
        assert!(!format!("{s:?}").contains('0'));
        for bad in ["", "12", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(Secret::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_node_says_of_itself_is_vouched_for_by_nonce_and_secret() {
        let (s, said) = (secret(1), b"Hello");
        let proof = s.vouch(&[1; BYTES], said);
        assert!(s.is_vouched(&[1; BYTES], said, &proof));
        assert!(!s.is_vouched(&[2; BYTES], said, &proof), "said again");
        assert!(!s.is_vouched(&[1; BYTES], b"Hallo", &proof));
        assert!(!secret(2).is_vouched(&[1; BYTES], said, &proof));
        assert!(!s.is_vouched(&[1; BYTES], said, b""));
    }

    #[test]
    fn a_node_is_told_until_it_has_answered() {
        let mut r = Rounds::default();
        assert!(r.know("a:1"));
        assert!(!r.know("a:1"));
        let told: Vec<u64> = (0..100_000)
            .filter(|ms| ms % 100 == 0 && !r.due(*ms, 5, true).is_empty())
            .collect();
        assert_eq!(
            told,
            [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000]
        );
        r.answered("a:1", 4);
        assert_eq!(r.due(200_000, 5, true), ["a:1"]);
        r.answered("a:1", 5);
        assert!(r.due(300_000, 5, true).is_empty());
        assert_eq!(r.due(400_000, 6, true), ["a:1"], "of the next term");
        let mut silent = Rounds::default();
        silent.know("a:1");
        assert!(silent.due(0, 5, false).is_empty(), "it has nothing to tell");
    }

    #[test]
    fn a_thousand_hints_are_one_question_a_second() {
        let mut r = Rounds::default();
        r.know("a:1");
        r.know("b:1");
        let mut asked = 0;
        for ms in 0..10_000 {
            r.hint();
            asked += r.due(ms, 5, false).len();
        }
        assert_eq!(asked, 2 * 10);
    }

    #[test]
    fn so_many_nodes_are_kept_and_no_more() {
        let mut r = Rounds::default();
        let news = (0..1000).filter(|n| r.know(&format!("a:{n}"))).count();
        assert_eq!((news, r.nodes().count()), (Rounds::NODES, Rounds::NODES));
    }
}
