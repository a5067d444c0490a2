//! A separate PostgreSQL cluster, on a free port and in its own directory, removed at the end.

use std::{
    env, fs,
    fs::File,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{lock, port::ReservedPort, process::ChildProcess, reaper};

/// Debian keeps the server's programs out of the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";
const USER: &str = "shop";
const READY_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// A running `postgres` with trust for everybody on 127.0.0.1, killed when dropped.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    port: ReservedPort,
    databases: AtomicU32,
    process: Mutex<Option<ChildProcess>>,
    directory: TempDir,
}

/// The cluster shared by the tests of this binary, started at the first call.
///
/// For tests that use a separate database and do not stop the cluster.
pub fn shared_postgres() -> &'static Postgres {
    static CLUSTER: OnceLock<Postgres> = OnceLock::new();
    CLUSTER.get_or_init(Postgres::start)
}

impl Postgres {
    /// Whether it is installed.
    pub fn is_there() -> bool {
        programs().is_some()
    }

    /// Makes a cluster and starts it.
    pub fn start() -> Self {
        let programs = programs().expect(
            "no `initdb` was found: these tests run a real PostgreSQL. Install it (Debian, Ubuntu: \
             `apt-get install --no-install-recommends postgresql`)",
        );
        let directory = reaper::directory("postgres");
        if let Some((uid, gid)) = other_user() {
            chown(directory.path(), Some(uid), Some(gid)).expect("root may give its files away");
        }
        let cluster = Self {
            programs,
            port: ReservedPort::pick(),
            databases: AtomicU32::new(0),
            process: Mutex::new(None),
            directory,
        };
        let mut init = cluster.program("initdb");
        init.args([
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ])
        .args(["--username", USER, "--pgdata"])
        .arg(cluster.data());
        run(init);
        cluster.launch();
        cluster
    }

    /// Makes an empty database and returns its URL.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut create = self.program("createdb");
        create.args(["--host=127.0.0.1", "--username", USER, "--port"]);
        create.arg(self.port.number().to_string()).arg(&name);
        run(create);
        self.url(&name)
    }

    /// The URL that a database of this name has.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.port.address())
    }

    /// Stops the cluster as a crash does: every connection is cut.
    pub fn stop(&self) {
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "--mode=immediate", "--no-wait", "--pgdata"])
            .arg(self.data());
        run(stop);
        let mut process = lock(&self.process);
        let stopped = process
            .take()
            .and_then(|mut process| process.wait(STOP_DEADLINE));
        assert!(stopped.is_some(), "postgres does not stop");
    }

    /// Starts a stopped cluster again, on its port and with its data.
    pub fn restart(&self) {
        self.launch();
    }

    fn launch(&self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the log opens");
        let arguments = [
            "-D".to_owned(),
            self.data().display().to_string(),
            "-p".to_owned(),
            self.port.number().to_string(),
            "-k".to_owned(),
            self.directory.path().display().to_string(),
            "-F".to_owned(),
            "-c".to_owned(),
            "listen_addresses=127.0.0.1".to_owned(),
            "-c".to_owned(),
            "max_connections=200".to_owned(),
        ];
        let program = self.programs.join("postgres");
        let mut process = ChildProcess::spawn(program, arguments, |command| {
            as_other_user(command);
            let errors = log.try_clone().expect("the log can be shared");
            command
                .current_dir(self.directory.path())
                .stdout(log)
                .stderr(errors);
        })
        .expect("postgres starts");
        let deadline = Instant::now() + READY_DEADLINE;
        loop {
            let mut ready = self.program("pg_isready");
            ready.args(["--quiet", "--host=127.0.0.1", "--port"]);
            ready.arg(self.port.number().to_string());
            if ready.status().is_ok_and(|status| status.success()) {
                break;
            }
            let ended = process.try_wait();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "postgres does not come up ({ended:?})\n{}",
                fs::read_to_string(self.log()).unwrap_or_default()
            );
            thread::sleep(POLL);
        }
        *lock(&self.process) = Some(process);
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("postgres.log")
    }

    /// A program of this PostgreSQL, run as a user that may run it.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        as_other_user(&mut command);
        command.current_dir(self.directory.path());
        command
    }
}

/// The folder of `initdb`, which has all the others too.
fn programs() -> Option<PathBuf> {
    let in_path = env::var_os("PATH").unwrap_or_default();
    let newest = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .max();
    env::split_paths(&in_path)
        .chain(newest)
        .filter_map(|folder| fs::canonicalize(folder.join("initdb")).ok())
        .filter_map(|initdb| initdb.parent().map(Path::to_owned))
        .find(|folder| folder.join("postgres").exists())
}

/// The user that runs the server if the test runs as root, which PostgreSQL refuses: the user that
/// the package has created.
fn other_user() -> Option<(u32, u32)> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let fields = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == "postgres")
        .expect("there is a user postgres");
    let number = |at: usize| fields[at].parse().expect("ids are numbers");
    Some((number(2), number(3)))
}

fn as_other_user(command: &mut Command) {
    if let Some((uid, gid)) = other_user() {
        command.uid(uid).gid(gid);
    }
}

fn run(mut command: Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}
