//! A process that forbids system calls to itself while a store is open.

use std::{
    env,
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use sievedb::{Db, Durability, Event, EventListener, Options};

use super::{DIR_VARIABLE, MIB, other_process, resident_bytes};

const SCENARIO_VARIABLE: &str = "SIEVE_SANDBOX";
const BUDGET: u64 = 8 * MIB;
/// 66 MB in total.
const ENTRIES: u32 = 66_000;

#[derive(Debug, Default)]
struct Refusals(AtomicUsize);

impl EventListener for Refusals {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::BarriersRefused) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// Forbids `membarrier` and `prlimit64` to all threads of this process.
fn forbid_calls() {
    let number_of_call = 0;
    let instruction = |code: u32, k: u32, (jt, jf): (u8, u8)| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let call = |number: libc::c_long| u32::try_from(number).unwrap();
    let (membarrier, prlimit) = (call(libc::SYS_membarrier), call(libc::SYS_prlimit64));
    let denied = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_of_call, (0, 0)),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, membarrier, (1, 0)),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, prlimit, (0, 1)),
        instruction(libc::BPF_RET | libc::BPF_K, denied, (0, 0)),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, (0, 0)),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
    // SAFETY: only numbers are passed.
    let without_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(without_privileges, 0);
    let (set, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program and its instructions live during the call.
    let is_set = unsafe { libc::syscall(libc::SYS_seccomp, set, all_threads, &raw const program) };
    assert_eq!(is_set, 0, "the filter is not set");
}

/// Returns whether the system supports `membarrier` for this process.
fn has_membarrier() -> bool {
    // SAFETY: only numbers are passed.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    let expedited = i64::from(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    commands > 0 && commands & expedited != 0
}

/// Runs in a separate process.
#[test]
fn writer() {
    let Some(dir) = env::var_os(DIR_VARIABLE) else { return };
    if env::var_os(SCENARIO_VARIABLE).is_none() {
        return;
    }
    let had_membarrier = has_membarrier();
    let refusals = Arc::new(Refusals::default());
    let options = Options::new().memory_budget(BUDGET).listener(refusals.clone());
    let db = options.open(Path::new(&dir)).unwrap();
    db.insert("key", "value").unwrap();
    let begin = &Barrier::new(2);
    let (end, has_ended) = mpsc::channel::<()>();
    let open = &db;
    thread::scope(|scope| {
        // Reads before the filter is set, and then not until all entries are written.
        scope.spawn(move || {
            assert!(open.get("key").unwrap().is_some());
            begin.wait();
            // Also if the other thread panics.
            assert!(has_ended.recv().is_err());
            assert!(open.get("key").unwrap().is_some());
        });
        begin.wait();
        forbid_calls();
        assert!(!has_membarrier());
        let _end = end;
        write(open);
        // A new segment is extended in advance, up to the limit of files.
        let mut batch = open.batch();
        batch.insert(open, "key", "value").unwrap();
        batch.commit(Durability::Disk).unwrap();
    });
    let reported = refusals.0.load(SeqCst);
    assert_eq!(reported, usize::from(had_membarrier), "reports");
    db.close().unwrap();
}

fn write(db: &Db) {
    let before = resident_bytes("VmRSS:");
    let mut pinned_max = 0;
    for key in 0..ENTRIES {
        db.insert(key.to_be_bytes(), [7; 1_000]).unwrap();
        if key % 100 == 0 {
            pinned_max = pinned_max.max(db.stats().memory.pinned_bytes);
        }
    }
    let grown = resident_bytes("VmRSS:").saturating_sub(before);
    eprintln!("pinned at most {pinned_max} bytes, {grown} bytes more are resident");
    // At most the memtables of two views, which the limit of all memtables bounds.
    assert!(pinned_max <= BUDGET / 2, "{pinned_max} bytes are pinned");
    assert!(grown < 40 * MIB, "{grown} bytes more are resident");
}

#[test]
fn f3_memory_is_bounded_when_membarrier_is_forbidden_after_opening() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = other_process("processes::sandboxed::writer");
    writer.env(DIR_VARIABLE, dir.path()).env(SCENARIO_VARIABLE, "1");
    assert!(writer.status().unwrap().success());
}
