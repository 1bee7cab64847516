/* Keeping fork out of operations and deleters (native/core/memory/fork_gate.cpp, fork_registry.cpp).

   Two gates, each a count of who is inside and a bit that keeps newcomers out; sleeping is a futex on that word. A thread makes
   an operation, and drops a view inside it; another one only drops a view; a third thread forks, twice.

   MUTANT 1 leave_without_wake: who leaves does not wake the fork that waits
   MUTANT 2 newcomer_stays_counted: who finds the gate closed sleeps without giving its count back
   MUTANT 3 deleters_first: prepare closes the deleters' gate before the operations'
   MUTANT 4 open_without_wake: nobody wakes those that were kept out
   MUTANT 5 fork_does_not_wait: prepare closes the gates and goes on
   MUTANT 6 no_compare: the kernel does not compare the word when it puts a thread to sleep
   MUTANT 7 one_gate: deleters enter the gate of the operations again, as newcomers */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define OPERATIONS 0
#define DELETERS 1

byte inside[2];            /* the count in the word */
bit closed[2];             /* its highest bit */
bit asleep[5];             /* by pid of the model: on the word of gate `on` */
byte on[5];
byte busy[2];              /* ghost: who is truly inside */
bit done[5];

inline wake(g) { d_step { if :: asleep[1] && on[1] == g -> asleep[1] = 0 :: else fi; if :: asleep[2] && on[2] == g -> asleep[2] = 0 :: else fi;
                          if :: asleep[3] && on[3] == g -> asleep[3] = 0 :: else fi } }
inline sleep(g, count, bit_) {                       /* FUTEX_WAIT on the value that was seen */
  d_step { if :: (inside[g] == count && closed[g] == bit_) || M(6) -> asleep[_pid] = 1; on[_pid] = g :: else fi };
  !asleep[_pid]
}

inline leave(g) {
  d_step { inside[g]--; was_closed = closed[g] };
  if :: was_closed && !M(1) -> wake(g) :: else fi
}

inline enter(g) {
  do
  :: d_step { inside[g]++; was_closed = closed[g] };
     if
     :: !was_closed -> break
     :: else ->
        if :: M(2) :: else -> leave(g) fi;
        do
        :: d_step { seen = inside[g]; was_closed = closed[g] };
           if :: was_closed -> sleep(g, seen, 1) :: else -> break fi
        od;
        if :: M(2) -> break :: else fi
     fi
  od;
  busy[g]++
}

inline close(g) {
  closed[g] = 1;
  do
  :: seen = inside[g];
     if :: seen == 0 || M(5) -> break :: else -> sleep(g, seen, 1) fi
  od
}
inline open(g) { closed[g] = 0; if :: M(4) :: else -> wake(g) fi }

proctype Operation() {
  byte seen; bit was_closed;
  enter(OPERATIONS);
  if :: M(7) -> enter(OPERATIONS) :: else -> enter(DELETERS) fi;    /* a view dies inside it */
  if :: M(7) -> busy[OPERATIONS]--; leave(OPERATIONS) :: else -> busy[DELETERS]--; leave(DELETERS) fi;
  busy[OPERATIONS]--;
  leave(OPERATIONS);
  done[_pid] = 1
}

proctype Deleter() {
  byte seen; bit was_closed;
  enter(DELETERS);
  busy[DELETERS]--;
  leave(DELETERS);
  done[_pid] = 1
}

proctype Fork() {
  byte seen, times;
  do
  :: times < 2 ->
     if
     :: M(3) -> close(DELETERS); close(OPERATIONS)
     :: else -> close(OPERATIONS); close(DELETERS)
     fi;
     assert(busy[OPERATIONS] == 0 && busy[DELETERS] == 0);          /* the child sees whole objects */
     open(DELETERS);
     open(OPERATIONS);
     times++
  :: else -> break
  od;
  done[_pid] = 1
}

proctype Judge() { timeout -> assert(done[1] && done[2] && done[3]) }

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic { run Operation(); run Deleter(); run Fork(); run Judge() }
}
