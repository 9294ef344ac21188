# Runs a job that has to end early: with an error, within so many seconds, having said what it should.
#
# In: seconds, text (a regular expression), job (the command, words joined by |).

string(REPLACE "|" ";" job "${job}")
string(TIMESTAMP start "%s")
execute_process(COMMAND ${job} TIMEOUT 40 RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
string(TIMESTAMP end "%s")
math(EXPR took "${end} - ${start}")

message(STATUS "after ${took} s: ${result}\n${said}")
if(result EQUAL 0)
  message(FATAL_ERROR "the job ended well")
endif()
if(took GREATER seconds)
  message(FATAL_ERROR "it took ${took} s; at most ${seconds} are good")
endif()
if(NOT said MATCHES "${text}")
  message(FATAL_ERROR "nothing said '${text}'")
endif()
