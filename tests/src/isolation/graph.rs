//! Cycles in directed graphs.

use std::collections::VecDeque;

/// Maximum number of edges that a search for the shortest cycle of a component follows.
const STEPS_MAX: usize = 1 << 20;

/// A directed graph. Each edge has a label.
#[derive(Debug)]
pub(super) struct Graph {
    /// Index of the first edge of each node, then the number of edges.
    starts: Vec<u32>,
    /// Target and label of each edge.
    edges: Vec<(u32, u32)>,
}

impl Graph {
    /// Creates a graph of `nodes` nodes. `edges` returns the same edges at each call: source,
    /// target, label.
    pub(super) fn new<I: Iterator<Item = (u32, u32, u32)>>(
        nodes: usize,
        edges: impl Fn() -> I,
    ) -> Self {
        let mut starts = vec![0; nodes + 1];
        edges().for_each(|(from, _, _)| starts[from as usize + 1] += 1);
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut placed = vec![(0, 0); starts[nodes] as usize];
        for (from, to, label) in edges() {
            let at = &mut next[from as usize];
            placed[*at as usize] = (to, label);
            *at += 1;
        }
        Self { starts, edges: placed }
    }

    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn edges_of(&self, node: u32) -> &[(u32, u32)] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Returns the strongly connected components of more than one node.
    ///
    /// Source: Tarjan, "Depth-First Search and Linear Graph Algorithms", SIAM Journal on Computing
    /// 1(2), 1972, with a stack of its own instead of recursion.
    pub(super) fn components(&self) -> Vec<Vec<u32>> {
        const NEW: u32 = u32::MAX;
        let mut components = Vec::new();
        let mut numbers = vec![NEW; self.nodes()];
        let mut lows = vec![0; self.nodes()];
        let mut is_open = vec![false; self.nodes()];
        let (mut open, mut path, mut count) = (Vec::new(), Vec::<(u32, usize)>::new(), 0);
        for root in 0..self.nodes() as u32 {
            if numbers[root as usize] == NEW {
                path.push((root, 0));
            }
            while let Some((node, next)) = path.pop() {
                let at = node as usize;
                if next == 0 {
                    (numbers[at], lows[at], is_open[at]) = (count, count, true);
                    count += 1;
                    open.push(node);
                } else {
                    // Back from the target of the edge before.
                    let (child, _) = self.edges_of(node)[next - 1];
                    lows[at] = lows[at].min(lows[child as usize]);
                }
                let mut edges = self.edges_of(node).iter().skip(next).zip(next + 1..);
                let descend = edges.find(|((to, _), _)| {
                    let to = *to as usize;
                    if is_open[to] {
                        lows[at] = lows[at].min(numbers[to]);
                    }
                    numbers[to] == NEW
                });
                if let Some(((to, _), next)) = descend {
                    path.extend([(node, next), (*to, 0)]);
                } else if lows[at] == numbers[at] {
                    let start = open.iter().rposition(|&it| it == node).expect("it is open");
                    let component = open.split_off(start);
                    component.iter().for_each(|&closed| is_open[closed as usize] = false);
                    if component.len() > 1 {
                        components.push(component);
                    }
                }
            }
        }
        components
    }

    /// Returns the labels of a short cycle within the strongly connected `component`: a shortest
    /// one, unless the component is large.
    pub(super) fn short_cycle(&self, component: &[u32], scratch: &mut Scratch) -> Vec<u32> {
        scratch.parents.resize(self.nodes(), (0, 0, 0));
        let generation = scratch.next_generation();
        component.iter().for_each(|&node| scratch.parents[node as usize].0 = generation);
        let (mut steps, mut best) = (0, Vec::new());
        for &start in component {
            if steps > STEPS_MAX || best.len() == 2 {
                break;
            }
            let seen = scratch.next_generation();
            let most = if best.is_empty() { usize::MAX } else { best.len() };
            let found = self.cycle_from(start, most, (generation, seen), &mut steps, scratch);
            best = found.unwrap_or(best);
        }
        debug_assert!(best.len() > 1, "a component has a cycle");
        best
    }

    /// Returns the labels of a shortest cycle through `start` with fewer than `most` edges.
    fn cycle_from(
        &self,
        start: u32,
        most: usize,
        (in_component, seen): (u32, u32),
        steps: &mut usize,
        scratch: &mut Scratch,
    ) -> Option<Vec<u32>> {
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((node, depth)) = queue.pop_front() {
            if depth + 1 >= most {
                return None;
            }
            for &(to, label) in self.edges_of(node) {
                *steps += 1;
                if to == start {
                    let mut labels = vec![label];
                    let mut node = node;
                    while node != start {
                        let (_, parent, label) = scratch.parents[node as usize];
                        labels.push(label);
                        node = parent;
                    }
                    labels.reverse();
                    return Some(labels);
                }
                let parent = &mut scratch.parents[to as usize];
                // Marks of earlier searches in the component are above its own.
                if (in_component..seen).contains(&parent.0) {
                    *parent = (seen, node, label);
                    queue.push_back((to, depth + 1));
                }
            }
        }
        None
    }
}

/// Buffers of searches for cycles, reused.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    generation: u32,
    /// Search that reached the node last, its predecessor, and the label of the edge from it.
    parents: Vec<(u32, u32, u32)>,
}

impl Scratch {
    fn next_generation(&mut self) -> u32 {
        self.generation += 1;
        self.generation
    }
}
