//! `consensus`: the file of the consensus log, and messages of the consensus. `words`: questions of nodes to each other. `questions`: what a fail-over asks
//! and is answered, with the deciders behind it.

use ::cluster::consensus::Message;
use ::cluster::consensus::file::Content;
use ::cluster::question::{Asked, Guidance, Joined};
use ::cluster::waiting::{Seen, Waiting};
use ::cluster::word::{Said, Word};
use ::cluster::{Action, Answer, Before, Catalogue, Failover, Phase, Terms};
use base::MAX_TERM;
use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: &[u8] = b"CANONRF1";

/// The first byte chooses: 0 the file as it is, 1 the bodies of frames with a zero between two of them, else a message.
pub fn consensus(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        Some((0, file)) => content(file),
        Some((1, bodies)) => content(&framed(bodies)),
        Some((_, message)) => match Message::decode(message) {
            Ok(message) => {
                let again = Message::decode(&message.encode()).expect("it was taken before");
                assert_eq!(format!("{again:?}"), format!("{message:?}"));
                true
            }
            Err(_) => false,
        },
        None => false,
    }
}

/// Accepted: a file that says the same when it is written anew.
fn content(file: &[u8]) -> bool {
    let Ok((content, good)) = Content::decode(file) else {
        return false;
    };
    assert!(good <= file.len(), "{good}");
    assert!(content.entries.len() <= file.len(), "no more than bytes");
    let written = content
        .encode()
        .expect("it is no longer than what was read");
    let (again, all) = Content::decode(&written).expect("whole");
    assert_eq!(all, written.len());
    assert_eq!(format!("{again:?}"), format!("{content:?}"));
    assert_eq!(again.expected(), content.expected());
    true
}

/// A file of these bodies, with right lengths and checksums.
fn framed(bodies: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    for body in bodies.split(|b| *b == 0) {
        let len = (body.len() as u32).to_le_bytes();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&len), body);
        file.extend(len);
        file.extend(sum.to_le_bytes());
        file.extend(body);
    }
    file
}

const NODE: &str = r#"{"name":"a","address":"a:1","kind":"Server","level":2}"#;
const ID: &str = r#"{"leader_id":{"term":1,"node_id":1},"index":1}"#;
const VOTE: &str = r#"{"leader_id":{"term":1,"node_id":1},"committed":true}"#;

pub fn consensus_seeds() -> Vec<Vec<u8>> {
    let entry = |index: u64, payload: &str| {
        format!(
            r#"{{"log_id":{{"leader_id":{{"term":1,"node_id":1}},"index":{index}}},"payload":{payload}}}"#
        )
    };
    let voters = entry(0, r#"{"Membership":{"configs":[[1]],"nodes":{"1":{}}}}"#);
    let found = format!(r#"{{"Normal":{{"Found":{{"node":1,"member":{NODE},"term":1}}}}}}"#);
    let begin = r#"{"Normal":{"Begin":{"after":1,"above":9}}}"#;
    let entries = [
        voters,
        entry(1, &found),
        entry(2, begin),
        entry(3, "\"Blank\""),
    ]
    .join(",");
    let members = r#"{"log_id":null,"membership":{"configs":[[1]],"nodes":{"1":{}}}}"#;
    let meta = format!(r#"{{"last_log_id":{ID},"last_membership":{members},"snapshot_id":"1"}}"#);
    let catalogue = serde_json::to_string(&Catalogue::default()).expect("a catalogue");
    let records = [
        format!(r#"{{"Vote":{VOTE}}}"#),
        format!(r#"{{"Append":[{entries}]}}"#),
        format!(r#"{{"Committed":{ID}}}"#),
        r#"{"Truncate":3}"#.to_owned(),
        format!(r#"{{"Purge":{ID}}}"#),
        format!(r#"{{"Snapshot":{{"meta":{meta},"catalogue":{catalogue}}}}}"#),
    ];
    let messages = [
        format!(
            r#"{{"Append":{{"vote":{VOTE},"prev_log_id":null,"entries":[{entries}],"leader_commit":{ID}}}}}"#
        ),
        format!(r#"{{"Vote":{{"vote":{VOTE},"last_log_id":{ID}}}}}"#),
        format!(r#"{{"Ballot":{{"vote":{VOTE},"last_log_id":null}}}}"#),
        format!(
            r#"{{"Snapshot":{{"vote":{VOTE},"meta":{meta},"offset":0,"data":[1,2],"done":true}}}}"#
        ),
        format!(r#"{{"Stand":{{"candidate":1,"last":{ID}}}}}"#),
    ];
    let bodies = records.join("\0");
    let file = framed(bodies.as_bytes());
    let mut all = vec![
        [b"\0", &file[..]].concat(),
        [b"\x01", bodies.as_bytes()].concat(),
    ];
    all.extend(records.map(|r| [b"\x01", r.as_bytes()].concat()));
    all.extend(messages.map(|m| [b"\x02", m.as_bytes()].concat()));
    all
}

fn again<T: Serialize + DeserializeOwned + std::fmt::Debug + PartialEq>(json: &[u8]) -> bool {
    let Ok(word) = serde_json::from_slice::<T>(json) else {
        return false;
    };
    let written = serde_json::to_vec(&word).expect("written");
    let read: T = serde_json::from_slice(&written).expect("it was taken before");
    assert_eq!(read, word);
    true
}

/// The first byte chooses a question or one of the answers. Accepted: what says the same when it is written anew.
pub fn words(bytes: &[u8]) -> bool {
    let Some((choice, word)) = bytes.split_first() else {
        return false;
    };
    match choice {
        0 => match Asked::decode(word) {
            Ok(asked) => {
                assert_eq!(
                    Asked::decode(&asked.encode()).expect("it was taken before"),
                    asked
                );
                true
            }
            Err(_) => false,
        },
        1 => again::<Joined>(word),
        2 => again::<Guidance>(word),
        _ => again::<Option<String>>(word),
    }
}

pub fn words_seeds() -> Vec<Vec<u8>> {
    let questions = [
        r#"Q"RunsItself""#.to_owned(),
        r#"Q{"Primary":{"you":"a:1"}}"#.to_owned(),
        r#"Q{"Guide":{"you":"a:1"}}"#.to_owned(),
        r#"Q{"IsMember":{"node":7,"level":2}}"#.to_owned(),
        r#"Q{"IsMember":{"node":7}}"#.to_owned(),
        r#"Q{"HandOver":{"to":7}}"#.to_owned(),
        format!(r#"Q{{"Join":{{"you":"a:1","node":7,"member":{NODE},"level":2}}}}"#),
        r#"Q{"Adopt":{"now":true}}"#.to_owned(),
        r#"Q"Level""#.to_owned(),
        r#"MW"Confirm""#.to_owned(),
    ];
    let answers = [
        (1, r#""Yes""#),
        (1, r#"{"Elsewhere":"a:1"}"#),
        (1, r#"{"Never":"no"}"#),
        (2, r#"{"term":7,"primary":"a:1","members":["a:1","b:1"]}"#),
        (2, r#"{"term":7,"primary":null,"members":[]}"#),
        (3, r#""a:1""#),
        (3, "null"),
    ];
    let asked = questions.map(|q| [b"\0", q.as_bytes()].concat());
    let answered = answers.map(|(kind, a)| [&[kind], a.as_bytes()].concat());
    asked.into_iter().chain(answered).collect()
}

/// Words and answers with a line break between two of them; a line that begins with a digit is that node's answer. The consensus leader's deciders take them all, in
/// this order, as if each command that is proposed were agreed on. Accepted: at least one was read.
///
/// No word panics. Only a leader that the catalogue names gets a lease. A term that is asked under is above all that led before.
pub fn questions(bytes: &[u8]) -> bool {
    let mut catalogue = Catalogue::default();
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    let (mut now, mut read) = (0, 0);
    for line in bytes.split(|b| *b == b'\n') {
        now += 1_000_000_000;
        match line.split_first() {
            Some((node @ b'0'..=b'9', answer)) => {
                let Ok(answer) = Answer::decode(answer) else {
                    continue;
                };
                let term = catalogue.phase().map_or(0, Phase::term);
                failover.answered(term, u64::from(node - b'0'), answer);
            }
            _ => match Said::decode(line) {
                Ok(said) => {
                    let again = said.encode();
                    assert_eq!(Said::decode(&again).expect("it was taken before"), said);
                    hear(said, &mut catalogue, &mut failover, now);
                }
                Err(_) => continue,
            },
        }
        read += 1;
        let before = catalogue.phase().map_or(0, Phase::term);
        for action in failover.tick(&catalogue, now) {
            match action {
                Action::Propose(command) => _ = catalogue.apply(&command),
                Action::Ask { node, term } => {
                    assert!(catalogue.members().contains_key(&node), "{node}");
                    assert_eq!(term, before, "an older term is asked under");
                }
            }
        }
        let after = catalogue.phase().map_or(0, Phase::term);
        assert!(after >= before, "{after} after {before}");
        _ = failover.obstacle(&catalogue);
        let seen = Seen {
            waits: true,
            hold_all: read,
            keep_up: read,
            waited: read,
        };
        let mut waiting = Waiting::new(after);
        _ = waiting.tick(&catalogue, seen, 0);
        _ = waiting.tick(&catalogue, seen, now);
    }
    read > 0
}

fn hear(said: Said<'_>, catalogue: &mut Catalogue, failover: &mut Failover, now: u64) {
    let Said::Word(word) = said else { return };
    match word {
        Word::Lease { request, .. } => {
            let granted = failover.requested(catalogue, request, now);
            let leads = catalogue.leads_term(request.holder, request.term);
            assert!(!granted || leads, "{request:?}");
        }
        Word::Propose(command) => {
            let before = catalogue.clone();
            if catalogue.apply(&command).is_err() {
                assert_eq!(
                    *catalogue, before,
                    "{command:?} is refused, and changes something"
                );
            }
            let voters = catalogue.voters(&before.voters(&Default::default()));
            assert!(matches!(voters.len(), 0 | 1 | 3), "{voters:?}");
        }
        Word::Promise { term } => assert!(term <= MAX_TERM),
        Word::Confirm | Word::Reach => {}
    }
}

pub fn questions_seeds() -> Vec<Vec<u8>> {
    let propose = |command: &str| format!(r#"W{{"Propose":{command}}}"#);
    let join = |node: u64, name: &str, kind: &str| {
        propose(&format!(
            r#"{{"Join":{{"node":{node},"member":{{"name":"{name}","address":"{name}:1","kind":"{kind}"}}}}}}"#
        ))
    };
    let lease =
        r#"W{"Lease":{"request":{"holder":1,"term":1,"number":3,"life":4,"length":1500},"end":5}}"#;
    let lines = [
        propose(&format!(
            r#"{{"Found":{{"node":1,"member":{NODE},"term":1}}}}"#
        )),
        join(2, "b", "Server"),
        join(3, "c", "Witness"),
        lease.to_owned(),
        propose(r#"{"Covered":{"term":1,"by":1,"change":0}}"#),
        propose(r#"{"Degrade":{"term":1,"wanted":0}}"#),
        propose(r#""Restore""#),
        propose(
            r#"{"Set":{"policies":{"synchronous_replicas":1,"max_loss":9,"degrade_after":9,"sites_may_lead":true,"lease":9,"maintenance":false},"before":null}}"#,
        ),
        propose(r#"{"Begin":{"after":1,"above":4}}"#),
        r#"2{"Promised":{"term":1,"position":9,"age":7,"failed":1}}"#.to_owned(),
        r#"1{"Promised":{"term":1,"position":9}}"#.to_owned(),
        r#"3{"Later":8}"#.to_owned(),
        propose(r#"{"Name":{"node":2,"term":5,"lost":3}}"#),
        propose(r#"{"HandOver":{"term":5,"to":1}}"#),
        propose(r#"{"Took":{"node":2,"term":99}}"#),
        propose(r#"{"Leave":{"node":1}}"#),
        r#"W{"Promise":{"term":7}}"#.to_owned(),
        r#"W"Confirm""#.to_owned(),
        r#"W"Reach""#.to_owned(),
        "Canything".to_owned(),
    ];
    let whole = lines.join("\n").into_bytes();
    let each = lines.map(String::into_bytes);
    std::iter::once(whole).chain(each).collect()
}
