/* Leases over fork (native/core/memory/lease_file.cpp, lease_directory.cpp): claims are copied into a file for the child, the
   parent may give its own up at once, and a scan reads one file after the other.

   A parent that holds a claim forks a child, which forks another; one of them may be killed, or execute another program, anywhere.
   Meanwhile a retirer, whose word is set already, scans. The gate (fork_gate.pml) makes each step below one: nobody of the
   process is inside an operation or a deleter.

   MUTANT 1 no_counter: scans do not look at the count of hand-overs
   MUTANT 2 counter_read_before_entries: the second look at the count comes before the entries are read
   MUTANT 3 counted_too_late: the count goes up after the parent may have released
   MUTANT 4 child_makes_its_file: the claims are copied by the child, after the fork
   MUTANT 5 lock_closed_before_fork: the parent gives the new file's lock up before the child has it
   MUTANT 6 count_before_file: the count goes up before the file is there
   MUTANT 7 keeps_its_descriptor: the parent keeps its descriptor of the child's file, so a dead child's claim stays

   Whether a process is dead may be asked before or after its file is read: it never becomes alive again. */

c_decl { \#include <stdlib.h> };
byte mutant;
#define M(n) (mutant == n)
#define N 3

/* lease files, by owner id: the order of a scan */
bit exists[N], entry[N];
bit locked[N];             /* by the process itself */
bit locked_by_parent[N];   /* through the descriptor that the parent has of it over the fork */
byte handovers;
bit started[N], killed[N + 2];   /* killed: by pid of the model */

bit reading[N];            /* ghost: process i reads the block */
bit over[N];               /* ghost: it has ended */

#define dead(i) (!locked[i] && !locked_by_parent[i])

inline finish(i) { d_step { reading[i] = 0; over[i] = 1; locked[i] = 0; if :: i < N - 1 -> locked_by_parent[i + 1] = 0 :: else fi } }

/* process i; i + 1 is its child */
proctype Process(byte i) provided (!killed[_pid]) {
  started[i];
  if
  :: M(4) && i > 0 -> exists[i] = 1; locked[i] = 1; entry[i] = 1; handovers++
  :: else
  fi;
  if
  :: i < N - 1 ->                                    /* LeaseFile::before_fork */
     if
     :: M(4)
     :: else ->
        if :: M(6) -> handovers++ :: else fi;
        d_step { locked_by_parent[i + 1] = 1; entry[i + 1] = entry[i] };   /* File::make: locked, formatted ... */
        exists[i + 1] = 1;                           /* ... renamed */
        if :: M(5) -> locked_by_parent[i + 1] = 0 :: else fi;
        if :: !M(3) && !M(6) && !M(1) -> handovers++ :: else fi
     fi;
     if
     :: d_step {                                     /* fork: the child has the descriptor, and reads what the parent read */
          started[i + 1] = 1; reading[i + 1] = 1;
          if :: M(4) -> skip :: else -> locked[i + 1] = !M(5) fi
        }
     :: skip                                         /* it failed: the file stays behind without a lock */
     fi;
     if :: M(7) -> skip :: else -> locked_by_parent[i + 1] = 0 fi   /* after_fork_in_parent */
  :: else
  fi;
  d_step { reading[i] = 0; entry[i] = 0 };           /* the last tensor dies; or the claim is kept until the end */
  if :: M(3) && i < N - 1 -> handovers++ :: else fi;
  if :: exists[i] -> exists[i] = 0 :: skip fi;       /* ~LeaseFile: removes its file; or exit without */
  if :: M(7) -> skip :: else -> finish(i) fi
}

inline kill(i) { atomic { started[i] && !over[i] -> finish(i); killed[i + 1] = 1 } }
/* one file: its entries, then, where that matters, its process */
inline look(f) {
  if
  :: there[f] && entry[f] -> if :: !dead(f) -> leased = 1 :: else fi
  :: else
  fi
}

proctype Killer() { if :: kill(0) :: kill(1) :: kill(2) :: skip fi }

/* LeaseDirectory::unleased, one attempt at any time: another one is no different */
proctype Retirer() {
  byte before; bit leased; bit there[N];
  before = handovers;
  d_step { there[0] = exists[0]; there[1] = exists[1]; there[2] = exists[2] };
  look(0);
  if :: M(2) -> handovers == before :: else fi;
  look(1);
  look(2);
  if
  :: d_step { (M(1) || M(2) || handovers == before) && !leased -> assert(!reading[0] && !reading[1] && !reading[2]) }
  :: else                                            /* leased, or a claim may have moved: another attempt */
  fi
}

/* Whoever is over is dead: the next scan passes its claims over. */
proctype Judge() { timeout -> assert((over[0] -> dead(0) : 1) && (over[1] -> dead(1) : 1) && (over[2] -> dead(2) : 1)) }

init {
  c_code { const char* m = getenv("TQ_MUTANT"); now.mutant = m ? (unsigned char)atoi(m) : 0; };
  atomic {
    exists[0] = 1; entry[0] = 1; locked[0] = 1; started[0] = 1; reading[0] = 1;
    run Process(0); run Process(1); run Process(2); run Retirer(); run Killer(); run Judge()
  }
}
