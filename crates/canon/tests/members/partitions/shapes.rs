//! The shapes of partitions, all of them.
//!
//! ```text
//! place 0, the primary ◀──▶ place 1        six links, one for each direction: 64 cuts of them
//!          ▲                   ▲
//!          └──────▶ place 2 ◀──┘           and one client that place 0, 1 or 2 does not hear, or that hears nothing of it
//! ```
//! A place is what a member is at that moment, so members that are alike count once:
//!
//! | members | place 1 | place 2 | the consensus leader | cuts |
//! |---|---|---|---|---|
//! | three servers | a replica | a replica | place 0 | 36, as places 1 and 2 are alike |
//! | three servers | the consensus leader | a replica | place 1 | 64 |
//! | two servers and a witness | the replica | the witness | place 0, 1 or 2 | 3 times 64 |
//!
//! With the client's this is 1000 shapes of three servers, and 1344 with a witness. In one shape of three, drawn by the seed, another cut of the links follows
//! without a time between in which all is whole.
//!
//! Left out on purpose: more members, and more than two cuts in a row.

use super::net::Ways;
use std::fmt;
use workload::rng::Rng;

/// Which members a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    Servers,
    /// Two servers and a witness.
    Witness,
}

/// From place, to place.
const LINKS: [(usize, usize); 6] = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];

/// Which of [`LINKS`] are cut, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links(u8);

impl Links {
    pub fn of(cut: &[(usize, usize)]) -> Links {
        let bit = |link: &(usize, usize)| {
            let at = LINKS.iter().position(|l| l == link);
            1 << at.expect("a link")
        };
        Links(cut.iter().map(bit).sum())
    }

    fn all() -> impl Iterator<Item = Links> {
        (0..64).map(Links)
    }

    fn cut(self) -> impl Iterator<Item = (usize, usize)> {
        let all = LINKS.iter().enumerate();
        all.filter(move |(i, _)| self.0 >> i & 1 == 1)
            .map(|(_, l)| *l)
    }

    /// Places 1 and 2 change their names.
    fn renamed(self) -> Links {
        let name = |place| [0, 2, 1][place];
        let all: Vec<_> = self.cut().map(|(a, b)| (name(a), name(b))).collect();
        Links::of(&all)
    }

    /// Whether two members reach each other, which are a majority with what was acknowledged.
    pub fn leave_a_majority(self) -> bool {
        let open = |link: &(usize, usize)| self.cut().all(|l| l != *link);
        LINKS.chunks(2).any(|pair| pair.iter().all(open))
    }
}

/// One shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub members: Members,
    /// The place of the consensus leader.
    pub decides: usize,
    pub links: Links,
    /// The place that one client lacks, and whether it hears no words of that place or its words are lost.
    pub client: Option<(usize, [bool; 2])>,
    /// What is cut of the links afterwards.
    pub then: Option<Links>,
}

impl Shape {
    /// One in which only these links are cut, in both directions.
    pub fn of(members: Members, decides: usize, cut: &[(usize, usize)]) -> Shape {
        let both: Vec<_> = cut.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
        Shape {
            members,
            decides,
            links: Links::of(&both),
            client: None,
            then: None,
        }
    }

    /// Those in which a second primary would be named first, and a commit be lost first.
    pub fn above_all(members: Members) -> Vec<Shape> {
        let alone = &[(0, 1), (0, 2)][..];
        let all = match members {
            // The primary alone, with the consensus leader on its side and on the other one.
            Members::Servers => vec![(0, alone), (1, alone)],
            // Both servers reach the witness and not each other; the primary lacks the witness only; the primary is alone.
            Members::Witness => vec![(2, &[(0, 1)][..]), (0, &[(0, 2)]), (0, alone)],
        };
        let all = all.into_iter();
        all.map(|(decides, cut)| Shape::of(members, decides, cut))
            .collect()
    }

    /// The ways that are cut where these nodes stand at the places, and this one is the client.
    pub fn ways(&self, links: Links, nodes: [usize; 3], client: usize) -> Ways {
        let mut ways: Ways = links.cut().map(|(a, b)| (nodes[a], nodes[b])).collect();
        if let Some((place, [to, from])) = self.client {
            ways.extend(to.then_some((client, nodes[place])));
            ways.extend(from.then_some((nodes[place], client)));
        }
        ways
    }

    /// All of them, in an order that the seed draws: each cut of the links comes once before any comes again with another one of the client.
    pub fn all(members: Members, seed: u64) -> Vec<Shape> {
        let mut rng = Rng::new(seed);
        let (leaders, servers) = match members {
            Members::Servers => (0..=1, 0..3),
            Members::Witness => (0..=2, 0..2),
        };
        let alike =
            |decides, l: &Links| members == Members::Servers && decides == 0 && l.renamed().0 < l.0;
        let links = leaders.flat_map(|decides| {
            let all = Links::all().filter(move |l| !alike(decides, l));
            all.map(move |l| (decides, l))
        });
        let mut links: Vec<_> = links.collect();
        for i in (1..links.len()).rev() {
            links.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let ways = [[true, true], [true, false], [false, true]];
        let lacks = servers.flat_map(|place| ways.map(|w| Some((place, w))));
        let clients: Vec<_> = std::iter::once(None).chain(lacks).collect();
        let mut begin = || rng.below(clients.len() as u64) as usize;
        let begin: Vec<usize> = links.iter().map(|_| begin()).collect();
        let mut shapes = Vec::new();
        for round in 0..clients.len() {
            for (&(decides, links), begin) in links.iter().zip(&begin) {
                let then = rng.percent(33).then(|| Links(rng.below(64) as u8));
                shapes.push(Shape {
                    members,
                    decides,
                    links,
                    client: clients[(begin + round) % clients.len()],
                    then,
                });
            }
        }
        shapes
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match (self.members, self.decides) {
            (Members::Witness, _) => ["primary", "replica", "witness"],
            (Members::Servers, 0) => ["primary", "replica", "other"],
            (Members::Servers, _) => ["primary", "leader", "replica"],
        };
        let say = |links: Links| {
            let all: Vec<_> = links
                .cut()
                .map(|(a, b)| format!("{}>{}", names[a], names[b]))
                .collect();
            all.join(" ")
        };
        write!(f, "{} decides", names[self.decides])?;
        write!(f, ", cut: [{}]", say(self.links))?;
        if let Some((place, [to, from])) = self.client {
            let name = names[place];
            let to = to.then(|| format!("client>{name}"));
            let from = from.then(|| format!("{name}>client"));
            let both: Vec<_> = to.into_iter().chain(from).collect();
            write!(f, " and [{}]", both.join(" "))?;
        }
        match self.then {
            Some(then) => write!(f, ", then [{}]", say(then)),
            None => Ok(()),
        }
    }
}

#[test]
fn there_are_so_many_shapes() {
    for (members, links, all) in [(Members::Servers, 100, 1000), (Members::Witness, 192, 1344)] {
        let shapes = Shape::all(members, 7);
        assert_eq!(shapes.len(), all);
        let said = |s: &Shape| (s.decides, s.links.0);
        let first: std::collections::BTreeSet<_> = shapes[..links].iter().map(said).collect();
        assert_eq!(first.len(), links, "each cut of the links comes first");
        let said = |s: &Shape| (s.decides, s.links.0, s.client);
        let different: std::collections::BTreeSet<_> = shapes.iter().map(said).collect();
        assert_eq!(different.len(), all);
    }
    let ring = Links::of(&[(0, 1), (1, 2), (2, 0)]);
    assert_eq!(ring.renamed(), Links::of(&[(0, 2), (2, 1), (1, 0)]));
    assert!(!ring.leave_a_majority());
    assert!(Links::of(&[(0, 1), (1, 2)]).leave_a_majority());
}
