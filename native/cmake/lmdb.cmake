# Defines the target tq_lmdb: liblmdb, static where that archive can go into a shared object, else shared.
# Debian's liblmdb.a is not position independent, so whether it links is tried and not assumed.

find_path(TQ_LMDB_INCLUDE lmdb.h)
find_library(TQ_LMDB_STATIC NAMES liblmdb.a)
find_library(TQ_LMDB_SHARED NAMES lmdb)
if(NOT TQ_LMDB_INCLUDE OR NOT (TQ_LMDB_STATIC OR TQ_LMDB_SHARED))
  message(FATAL_ERROR "lmdb.h and liblmdb are needed and were not found; install liblmdb-dev (Debian, Ubuntu), "
                      "lmdb-devel (Fedora) or lmdb (conda, Homebrew), or set TQ_LMDB_INCLUDE and TQ_LMDB_STATIC")
endif()

if(TQ_LMDB_STATIC)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${TQ_LMDB_INCLUDE})
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared)
  set(CMAKE_REQUIRED_LIBRARIES ${TQ_LMDB_STATIC})
  check_cxx_source_compiles("
    #include <lmdb.h>
    int tq_probe() { MDB_env* env = nullptr; return mdb_env_create(&env); }
    int main() { return tq_probe(); }" TQ_LMDB_STATIC_IS_PIC)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

add_library(tq_lmdb INTERFACE)
target_include_directories(tq_lmdb SYSTEM INTERFACE ${TQ_LMDB_INCLUDE})
if(TQ_LMDB_STATIC AND TQ_LMDB_STATIC_IS_PIC)
  target_link_libraries(tq_lmdb INTERFACE ${TQ_LMDB_STATIC})
  message(STATUS "liblmdb: static, ${TQ_LMDB_STATIC}")
elseif(TQ_LMDB_SHARED)
  target_link_libraries(tq_lmdb INTERFACE ${TQ_LMDB_SHARED})
  message(STATUS "liblmdb: shared, ${TQ_LMDB_SHARED} (the static one is missing or not position independent)")
else()
  message(FATAL_ERROR "${TQ_LMDB_STATIC} is not position independent and there is no shared liblmdb")
endif()
