//! The graph of dependencies between transactions, its components and its cycles.
//!
//! Components are found with Tarjan's algorithm (iterative, because histories are deep), cycles by
//! breadth-first search inside one component, so that the cycle shown is a shortest one.

use std::collections::{HashMap, VecDeque};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Its append is just before the other's in a list.
    Ww,
    /// The other read its append.
    Wr,
    /// It read the version that the other's append replaced (an anti-dependency).
    Rw,
    /// It was answered before the other began.
    Rt,
    /// The same of two transactions of one site.
    Site,
}

/// An edge; `key` is the list that shows it (0 where time does).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub to: usize,
    pub kind: Kind,
    pub key: u64,
}

/// A cycle: `(transaction, edge that leaves it)`; the last edge leads back to the first.
pub type Cycle = Vec<(usize, Kind, u64)>;

/// Adjacency lists over transactions numbered from 0.
#[derive(Debug)]
pub struct Graph {
    out: Vec<Vec<Edge>>,
}

impl Graph {
    pub fn new(nodes: usize) -> Graph {
        Graph {
            out: vec![Vec::new(); nodes],
        }
    }

    /// Adds an edge once per kind; loops are no dependency.
    pub fn add(&mut self, from: usize, kind: Kind, to: usize, key: u64) {
        if from != to && !self.out[from].iter().any(|e| e.to == to && e.kind == kind) {
            self.out[from].push(Edge { to, kind, key });
        }
    }

    /// The same nodes with the edges that `keep` says yes to, asked with the node that the edge leaves.
    pub fn keeping(&self, keep: impl Fn(usize, &Edge) -> bool) -> Graph {
        let kept = |(from, edges): (usize, &Vec<Edge>)| {
            let edges = edges.iter().filter(|e| keep(from, e));
            edges.copied().collect()
        };
        Graph {
            out: self.out.iter().enumerate().map(kept).collect(),
        }
    }

    fn edges(&self, from: usize, kinds: &[Kind]) -> impl Iterator<Item = Edge> {
        self.out[from]
            .iter()
            .copied()
            .filter(move |e| kinds.contains(&e.kind))
    }

    /// The component number of every node when only edges of `kinds` count; `None` for a node
    /// that is alone in its component (there are no loops, so it is on no cycle).
    pub fn components(&self, kinds: &[Kind]) -> Vec<Option<usize>> {
        let n = self.out.len();
        const NEW: usize = usize::MAX;
        let (mut index, mut low) = (vec![NEW; n], vec![0; n]);
        let (mut stack, mut on_stack) = (Vec::new(), vec![false; n]);
        let (mut component, mut found, mut next) = (vec![None; n], 0, 0);
        for root in 0..n {
            if index[root] != NEW {
                continue;
            }
            let mut calls: Vec<(usize, Vec<usize>)> = Vec::new();
            let enter = |v: usize, calls: &mut Vec<(usize, Vec<usize>)>| {
                calls.push((v, self.edges(v, kinds).map(|e| e.to).collect()));
            };
            enter(root, &mut calls);
            (index[root], low[root]) = (next, next);
            next += 1;
            stack.push(root);
            on_stack[root] = true;
            while let Some((v, rest)) = calls.last_mut() {
                let v = *v;
                if let Some(w) = rest.pop() {
                    if index[w] == NEW {
                        (index[w], low[w]) = (next, next);
                        next += 1;
                        stack.push(w);
                        on_stack[w] = true;
                        enter(w, &mut calls);
                    } else if on_stack[w] {
                        low[v] = low[v].min(index[w]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((parent, _)) = calls.last() {
                    low[*parent] = low[*parent].min(low[v]);
                }
                if low[v] == index[v] {
                    let at = stack
                        .iter()
                        .rposition(|&w| w == v)
                        .expect("v is on the stack");
                    let members = stack.split_off(at);
                    let alone = members.len() == 1;
                    for w in members {
                        on_stack[w] = false;
                        component[w] = (!alone).then_some(found);
                    }
                    found += 1;
                }
            }
        }
        component
    }

    /// For every component under `all` kinds, a shortest cycle that has an edge of kind `must` and
    /// otherwise edges of `rest`, if there is one. With `apart`, no two `must` edges of the cycle
    /// (ends included) may stand next to each other, and `rest` is taken to include `must`.
    pub fn cycles(&self, must: Kind, rest: &[Kind], apart: bool) -> Vec<Cycle> {
        let mut all = rest.to_vec();
        all.push(must);
        let component = self.components(&all);
        let mut best: HashMap<usize, Cycle> = HashMap::new();
        for (from, own) in component.iter().enumerate() {
            let Some(own) = own else { continue };
            for edge in self.edges(from, &[must]) {
                if component[edge.to] != Some(*own) {
                    continue;
                }
                let kinds = if apart { &all[..] } else { rest };
                if let Some(path) = self.path(edge.to, from, kinds, apart.then_some(must)) {
                    let mut cycle = vec![(from, must, edge.key)];
                    cycle.extend(path);
                    if best.get(own).is_none_or(|b| b.len() > cycle.len()) {
                        best.insert(*own, cycle);
                    }
                }
            }
        }
        let mut cycles: Vec<Cycle> = best.into_values().collect();
        cycles.sort();
        cycles
    }

    /// A shortest path of at least one edge. With `lonely`, the path neither begins nor ends with
    /// that kind nor has two of it in a row.
    fn path(&self, from: usize, to: usize, kinds: &[Kind], lonely: Option<Kind>) -> Option<Cycle> {
        // A state is a node and whether the edge into it was of the lonely kind.
        type State = (usize, bool);
        let start: State = (from, true);
        let mut came: HashMap<State, (State, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            let (node, after_lonely) = state;
            for edge in self.edges(node, kinds) {
                let is_lonely = lonely == Some(edge.kind);
                if is_lonely && (after_lonely || edge.to == to) {
                    continue;
                }
                let next: State = (edge.to, is_lonely);
                if next == start || came.contains_key(&next) {
                    continue;
                }
                came.insert(next, (state, edge));
                if edge.to == to {
                    let mut path = Vec::new();
                    let mut at = next;
                    while at != start {
                        let (before, edge) = came[&at];
                        path.push((before.0, edge.kind, edge.key));
                        at = before;
                    }
                    path.reverse();
                    return Some(path);
                }
                queue.push_back(next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, Kind, usize)]) -> Graph {
        let mut graph = Graph::new(nodes);
        for &(from, kind, to) in edges {
            graph.add(from, kind, to, 0);
        }
        graph
    }

    #[test]
    fn components_are_the_nodes_on_cycles() {
        use Kind::*;
        let g = graph(
            6,
            &[
                (0, Ww, 1),
                (1, Wr, 2),
                (2, Rw, 0),
                (2, Ww, 3),
                (4, Ww, 5),
                (5, Ww, 4),
            ],
        );
        let c = g.components(&[Ww, Wr, Rw]);
        assert!(c[0].is_some() && c[0] == c[1] && c[1] == c[2]);
        assert!(c[3].is_none());
        assert!(c[4].is_some() && c[4] == c[5] && c[4] != c[0]);
        let c = g.components(&[Ww, Wr]);
        assert!(c[0].is_none() && c[4].is_some());
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let n = 200_000;
        let mut g = Graph::new(n);
        for i in 0..n {
            g.add(i, Kind::Ww, (i + 1) % n, 0);
        }
        assert!(g.components(&[Kind::Ww]).iter().all(|c| *c == Some(0)));
    }

    #[test]
    fn the_shortest_cycle_is_shown() {
        use Kind::*;
        let g = graph(4, &[(0, Rw, 1), (1, Ww, 2), (2, Ww, 0), (1, Wr, 0)]);
        assert_eq!(
            g.cycles(Rw, &[Ww, Wr], false),
            [vec![(0, Rw, 0), (1, Wr, 0)]]
        );
    }

    #[test]
    fn adjacent_anti_dependencies_are_told_apart() {
        use Kind::*;
        let skew = graph(2, &[(0, Rw, 1), (1, Rw, 0)]);
        assert!(skew.cycles(Rw, &[Ww, Wr], false).is_empty());
        assert!(skew.cycles(Rw, &[Ww, Wr], true).is_empty());
        let fork = graph(4, &[(0, Rw, 1), (1, Wr, 2), (2, Rw, 3), (3, Wr, 0)]);
        assert!(fork.cycles(Rw, &[Ww, Wr], false).is_empty());
        assert_eq!(fork.cycles(Rw, &[Ww, Wr], true).len(), 1);
    }
}
