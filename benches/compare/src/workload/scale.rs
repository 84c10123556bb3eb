//! Lookups by threads on one store, alternating with as many processes, each on its own copy.

use std::{
    env,
    io::{BufRead as _, BufReader, Lines, Write as _, stdin},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use serde::{Deserialize, Serialize};
use sievedb_workload::random::{Random, mix};

use super::{
    lookups::{Asked, Lookups},
    meter::Meter,
    operations::{Limit, drive},
};
use crate::{
    contestant::Engine, failure::Result, figures::median, place::Place, rounds::CHILD,
    settings::Settings, task::Task,
};

/// Name of the figure: throughput of the threads over that of the processes.
pub(crate) const THREADS_OVER_PROCESSES: &str = "threads_over_processes";

/// Name of the figure: the same ratio by CPU time.
pub(crate) const THREADS_OVER_PROCESSES_CPU: &str = "threads_over_processes_cpu";

/// Turns of threads and of processes in a task.
const TURNS: u32 = 5;

/// Messages of a warm peer, and to start its turn.
const READY: &str = "ready";
const GO: &str = "go";

/// Time of one lookup in one turn, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Turn {
    ns: f64,
    cpu_ns: f64,
}

impl Turn {
    fn of(meter: &Meter) -> Self {
        let figures = meter.figures();
        Self { ns: figures.ns, cpu_ns: figures.cpu_ns }
    }

    /// Returns the harmonic mean: the time per lookup at equal combined throughput.
    fn together(turns: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| {
            turns.len() as f64 / turns.iter().map(|turn| 1.0 / of(turn)).sum::<f64>()
        };
        Self { ns: mean(|turn| turn.ns), cpu_ns: mean(|turn| turn.cpu_ns) }
    }
}

/// Measures threads on `engine` and processes in turn. Returns their named figures.
pub(crate) fn run<E: Engine>(
    engine: &E,
    asked: Asked,
    task: &Task,
    meter: &mut Meter,
) -> Result<Vec<(&'static str, f64)>> {
    let threads = task.case.threads;
    let places = (0..threads).map(|number| Place::copy(task, number));
    // Removed after the peers, which are dropped first, have ended.
    let _places: Vec<Place> = places.collect::<Result<_>>()?;
    let peers = (0..threads).map(|number| Peer::start(task, number));
    let mut peers: Vec<Peer> = peers.collect::<Result<_>>()?;
    peers.iter_mut().try_for_each(Peer::wait_until_ready)?;

    let (mut ratios, mut ratios_cpu) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let seed = mix(task.settings.seed ^ task.round) ^ u64::from(turn);
        let mut of_threads = None;
        if turn % 2 == 0 {
            of_threads = Some(by_threads(engine, asked, threads, seed, &task.settings, meter)?);
        }
        peers.iter_mut().try_for_each(Peer::go)?;
        let turns: Vec<Turn> = peers.iter_mut().map(Peer::answer).collect::<Result<_>>()?;
        let of_processes = Turn::together(&turns);
        let of_threads = match of_threads {
            Some(turn) => turn,
            None => by_threads(engine, asked, threads, seed, &task.settings, meter)?,
        };
        ratios.push(of_processes.ns / of_threads.ns);
        ratios_cpu.push(of_processes.cpu_ns / of_threads.cpu_ns);
    }
    Ok(vec![
        (THREADS_OVER_PROCESSES, median(ratios)),
        (THREADS_OVER_PROCESSES_CPU, median(ratios_cpu)),
    ])
}

/// Runs one turn of `threads` threads.
fn by_threads<E: Engine>(
    engine: &E,
    asked: Asked,
    threads: usize,
    seed: u64,
    settings: &Settings,
    meter: &mut Meter,
) -> Result<Turn> {
    meter.start()?;
    let results: Vec<_> = thread::scope(|scope| {
        let seeds = (0..threads as u64).map(|number| mix(seed ^ number << 32));
        let threads = seeds.map(|seed| scope.spawn(move || turn(engine, asked, seed, settings)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    meter.stop()?;
    let mut turns = Vec::new();
    for result in results {
        let of_thread = result.map_err(|_| "a reader has panicked")??;
        turns.push(Turn::of(&of_thread));
        meter.join(&of_thread);
    }
    Ok(Turn::together(&turns))
}

/// Runs one turn of one thread.
fn turn<E: Engine>(engine: &E, asked: Asked, seed: u64, settings: &Settings) -> Result<Meter> {
    let mut meter = Meter::new();
    let mut lookups = Lookups::new(asked, engine.reader()?, Random::new(seed), settings);
    let seconds = settings.seconds_max / f64::from(TURNS);
    drive(&mut lookups, Limit { operations: u64::MAX, seconds }, None, &mut meter)?;
    Ok(meter)
}

/// Runs a peer on its warm store: one turn of lookups per [`GO`], until its input ends.
#[expect(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) fn serve<E: Engine>(engine: &E, asked: Asked, task: &Task) -> Result<()> {
    println!("{READY}");
    let number = task.peer.unwrap_or_default() as u64;
    for (turns, line) in (0_u64..).zip(stdin().lock().lines()) {
        if line? != GO {
            break;
        }
        let seed = mix(task.settings.seed ^ task.round ^ (number + 1) << 32 ^ turns << 48);
        let turn = Turn::of(&turn(engine, asked, seed, &task.settings)?);
        println!("{}", serde_json::to_string(&turn)?);
    }
    Ok(())
}

/// A process that looks up keys in a copy of the store.
#[derive(Debug)]
struct Peer {
    child: Child,
    /// `None` only to end it.
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(task: &Task, number: usize) -> Result<Self> {
        let task = Task { peer: Some(number), ..task.clone() };
        let mut child = Command::new(env::current_exe()?)
            .args([CHILD, &serde_json::to_string(&task)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().ok_or("a peer has no output")?;
        Ok(Self { child, orders, answers: BufReader::new(answers).lines() })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.answers.next().ok_or("a peer has ended")??)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let line = self.line()?;
        if line == READY { Ok(()) } else { Err(format!("a peer reports {line}").into()) }
    }

    fn go(&mut self) -> Result<()> {
        let orders = self.orders.as_mut().ok_or("a peer has no input")?;
        Ok(writeln!(orders, "{GO}")?)
    }

    fn answer(&mut self) -> Result<Turn> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer closes its store and exits at the end of its input.
        self.orders = None;
        // Cannot fail: it is a child that was not waited for.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughputs_of_threads_are_added() {
        let turn = |ns| Turn { ns, cpu_ns: 2.0 * ns };
        // 2 and 6 ns: 0.5 and 1 / 6 lookups per ns, two thirds together, a third each.
        let together = Turn::together(&[turn(2.0), turn(6.0)]);
        assert!((together.ns - 3.0).abs() < 1e-9, "{together:?}");
        assert!((together.cpu_ns - 6.0).abs() < 1e-9, "{together:?}");
    }
}
