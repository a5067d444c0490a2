//! What is wrong with a sale that is over. Nothing is wrong with one that came out right.

/// Collects what is wrong.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn unless(&mut self, fine: bool, problem: impl FnOnce() -> String) {
        if !fine {
            self.0.push(problem());
        }
    }

    pub(super) fn accounted(&mut self, ended: u64, requests: u64) {
        self.unless(ended == requests, || {
            format!("{ended} of {requests} requests are accounted for")
        });
    }

    /// One in a hundred may be refused after its wait.
    pub(super) fn busy(&mut self, busy: u64, requests: u64) {
        self.unless(busy * 100 <= requests, || {
            format!("{busy} of {requests} requests were refused as busy, over 1 %")
        });
    }

    pub(super) fn sold(&mut self, sold: u64, due: u64) {
        self.unless(sold == due, || {
            format!("{sold} sold where {due} should have been")
        });
    }

    pub(super) fn duplicates(&mut self, count: u64) {
        self.unless(count == 0, || format!("{count} duplicate orders"));
    }

    pub(super) fn oversold(&mut self, count: u64) {
        self.unless(count == 0, || format!("{count} sold beyond the stock"));
    }
}

impl From<Problems> for Vec<String> {
    fn from(problems: Problems) -> Self {
        problems.0
    }
}
