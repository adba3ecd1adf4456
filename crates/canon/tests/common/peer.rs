//! A node made by hand: it logs in as other nodes do, proves itself or does not, and says whatever a test wants.

use super::{SECRET, Server};
use replica::proof::{Asker, Claim, Purpose, Secret};
use replica::ship::{Heard, Message};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What it says that it is.
#[derive(Clone)]
pub enum Proof {
    /// It proves nothing.
    None,
    /// A node of this name that knows of this term, by this secret.
    Node(String, u64, Secret),
}

impl Proof {
    /// As one of the cluster.
    pub fn member(name: &str, term: u64) -> Proof {
        Proof::Node(name.into(), term, Secret::parse(SECRET).expect("a secret"))
    }

    /// With a secret of its own.
    pub fn forged(name: &str, term: u64) -> Proof {
        Proof::Node(name.into(), term, Secret::new([7; 32]))
    }
}

pub struct RawPeer {
    pub stream: TcpStream,
    /// What the other end has proven.
    pub heard: Option<Claim>,
    /// What this one has said to prove itself, message by message.
    pub said: Vec<Vec<u8>>,
}

/// How a peer answers when it is asked for a proof.
enum Answers {
    Nothing,
    As(Box<Asker>),
    /// With these messages, whatever it is asked.
    Again(std::vec::IntoIter<Vec<u8>>),
}

impl Answers {
    /// The answer to the challenge of this kind.
    fn to(&mut self, kind: u32, challenge: &[u8]) -> Vec<u8> {
        match self {
            Answers::Nothing => Vec::new(),
            Answers::Again(said) => said.next().unwrap_or_default(),
            Answers::As(asker) if kind == 10 => {
                let first = asker.introduction();
                let len = (first.len() as u32).to_be_bytes();
                [b"CANON-NODE-1\0", &len[..], first].concat()
            }
            Answers::As(asker) => asker.challenged(challenge).expect("a challenge"),
        }
    }
}

/// SQLSTATE and message of an ErrorResponse.
fn refusal(body: &[u8]) -> (String, String) {
    let field = |kind: u8| {
        let mut fields = body.split(|b| *b == 0);
        let found = fields.find(|f| f.first() == Some(&kind));
        String::from_utf8_lossy(found.map_or(b"", |f| &f[1..])).into_owned()
    };
    (field(b'C'), field(b'M'))
}

fn purpose(mode: &str) -> Purpose {
    match mode {
        "forward" => Purpose::Sessions,
        "terms" => Purpose::Terms,
        "control" => Purpose::Control,
        _ => Purpose::Replica,
    }
}

impl RawPeer {
    /// Logs in as this role with this `replication` parameter; SQLSTATE and message when that is refused.
    pub fn connect(
        s: &Server,
        user: &str,
        mode: &str,
        cluster: u128,
        proof: &Proof,
    ) -> Result<RawPeer, (String, String)> {
        RawPeer::connect_saying(s, (user, mode), cluster, proof, &[])
    }

    /// The same, with more start-up parameters: names and values. A closed port is an error too.
    pub fn connect_saying(
        s: &Server,
        (user, mode): (&str, &str),
        cluster: u128,
        proof: &Proof,
        more: &[&str],
    ) -> Result<RawPeer, (String, String)> {
        let (mut name, mut answers) = (None, Answers::Nothing);
        if let Proof::Node(node, term, secret) = proof {
            name = Some(node.as_str());
            let claim = Claim {
                node: node.clone(),
                cluster,
                term: *term,
            };
            let nonce = std::array::from_fn(|i| i as u8 ^ *term as u8);
            let asker = Asker::new(secret.clone(), purpose(mode), &claim, &nonce);
            answers = Answers::As(Box::new(asker));
        }
        RawPeer::log_in(s, (user, mode), name, more, answers)
    }

    /// The same with what another connection has said to prove itself as the node of this name.
    pub fn replay(
        s: &Server,
        user: &str,
        mode: &str,
        name: &str,
        said: &[Vec<u8>],
    ) -> Result<RawPeer, (String, String)> {
        let said = said.to_vec();
        let again = Answers::Again(said.into_iter());
        RawPeer::log_in(s, (user, mode), Some(name), &[], again)
    }

    fn log_in(
        s: &Server,
        (user, mode): (&str, &str),
        name: Option<&str>,
        more: &[&str],
        mut answers: Answers,
    ) -> Result<RawPeer, (String, String)> {
        let stream = TcpStream::connect((s.host.as_str(), s.port));
        let stream = stream.map_err(|e| ("connection".to_owned(), e.to_string()))?;
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a limit");
        let mut peer = RawPeer {
            stream,
            heard: None,
            said: Vec::new(),
        };
        let mut words = vec!["user", user, "database", "canon", "replication", mode];
        words.extend(more);
        words.extend(name.iter().flat_map(|name| ["canon.node", name]));
        let mut body = 196_608u32.to_be_bytes().to_vec();
        for word in words.into_iter().chain([""]) {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        let len = (body.len() as u32 + 4).to_be_bytes();
        peer.write(&[&len[..], &body].concat());
        loop {
            let Some((kind, body)) = peer.message() else {
                return Err(("connection".into(), "it was closed".into()));
            };
            match (kind, body.split_first_chunk::<4>()) {
                (b'R', Some((code, rest))) => match (u32::from_be_bytes(*code), &mut answers) {
                    (0, _) => {}
                    (12, Answers::As(a)) => peer.heard = Some(a.answered(rest).expect("proven")),
                    (kind, answers) => {
                        let answer = answers.to(kind, rest);
                        peer.send(b'p', &answer);
                        peer.said.push(answer);
                    }
                },
                (b'E', _) => return Err(refusal(&body)),
                (b'Z', _) => return Ok(peer),
                _ => {}
            }
        }
    }

    /// Asks for this stream and turns over to CopyBoth; SQLSTATE and message when that is refused.
    pub fn turn(&mut self, command: &str) -> Result<(), (String, String)> {
        self.send(b'Q', &[command.as_bytes(), b"\0"].concat());
        loop {
            match self.message() {
                Some((b'W', _)) => return Ok(()),
                Some((b'E', body)) => return Err(refusal(&body)),
                Some(_) => {}
                None => return Err(("connection".into(), "it was closed".into())),
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // One that was closed is seen when it is read.
        _ = self.stream.write_all(bytes);
    }

    pub fn send(&mut self, kind: u8, body: &[u8]) {
        let len = (body.len() as u32 + 4).to_be_bytes();
        self.write(&[&[kind][..], &len, body].concat());
    }

    /// In CopyBoth.
    pub fn say(&mut self, m: &Message) {
        self.send(b'd', &m.to_bytes());
    }

    /// The next message of a replication stream; none: it was closed, or ended with an error.
    pub fn hear(&mut self) -> Option<Message> {
        loop {
            match self.message()? {
                (b'd', body) => {
                    if let Heard::Message(m) = Heard::decode(&body).expect("a message") {
                        return Some(m);
                    }
                }
                _ => return None,
            }
        }
    }

    /// Type and body; none: it was closed.
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// Whether the other end closes, whatever it says before.
    pub fn is_closed(&mut self) -> bool {
        while self.message().is_some() {}
        true
    }
}
